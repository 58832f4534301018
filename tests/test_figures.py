"""Every measured figure in the pages names the benchmark, test or command that produced it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
GENERATED = {"reference.md"}  # from the code, with the defaults of settings
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "contributing").glob("*.md")),
]

# Durations below a second, sizes, rates and ratios: limits have them too, and LIMITS names those.
FIGURE = re.compile(
    r"\d (?:ms|µs)\b|\d (?:KiB|MiB|GiB|kB|MB|GB|TB)\b|\d (?:\w+ )?(?:a|per) second"
    r"|\d times as|% of (?:a|one) core"
)
SOURCE = re.compile(
    r"benchmarks/\w+\.py|tests/[\w/]+\.py|decisions/\d{4}|`joulie (?:demo|simulate|replay|energy)\b"
)
# Sections whose figures are settings, bounds or examples, and not measurements.
LIMITS = {
    "README.md": {"Try it"},  # the packages of the lock
    "agent.md": {"When it is published", "While the broker is away"},
    "console.md": {"Access control"},
    "energy.md": {"Reports"},
    "events.md": {"Bounds", "Which sender may write which event"},
    "extender.md": {"What it refuses"},
    "faults.md": {"Messages"},
    "gpus.md": {"Cards that others give out"},
    "install.md": {"Archive", "Database and broker"},
    "operations.md": {"Metrics to watch"},
    "security.md": {"What a leaked credential can do"},
    "three-brokers.md": {"A server with a damaged store"},
}


class Section(NamedTuple):
    page: str
    heading: str
    text: str


def sections() -> Iterator[Section]:
    for path in PAGES:
        if path.name not in GENERATED:
            page = "\n" + re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
            for part in re.split(r"\n#+ ", page):
                heading, _, text = part.partition("\n")
                yield Section(path.name, heading, text)


WITH_FIGURES = [each for each in sections() if FIGURE.search(each.text)]


@pytest.mark.parametrize("section", WITH_FIGURES, ids=lambda each: f"{each.page}: {each.heading}")
def test_a_section_with_measured_figures_names_their_source(section: Section) -> None:
    if section.heading not in LIMITS.get(section.page, set()):
        assert SOURCE.search(section.text), FIGURE.findall(section.text)


def test_the_sections_with_limits_exist_and_have_figures() -> None:
    listed = {(page, heading) for page, headings in LIMITS.items() for heading in headings}

    assert listed - {(each.page, each.heading) for each in WITH_FIGURES} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_named_benchmarks_and_tests_exist(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"\b(?:benchmarks|tests)/[\w/]+\.py", text)
    shown = set(re.findall(r"`(tests/[\w/]+\.py)`:\n\n```python", text))  # files to be written

    assert [name for name in named if name not in shown and not (ROOT / name).exists()] == []
