"""Every measured figure in the pages names what produced it; one of a benchmark is taken from its
results."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from figures import MARK, PAGES, renewed, unmarked
from report import RESULTS, ROOT, read

GENERATED = {"reference.md"}  # from the code, with the defaults of settings

# Durations below a second, sizes, rates and ratios: limits have them too, and LIMITS names those.
FIGURE = re.compile(
    r"\d (?:ms|µs)\b|\d (?:KiB|MiB|GiB|kB|MB|GB|TB)\b|\d (?:\w+ )?(?:a|per) second"
    r"|\d times as|\d % of (?:a|one) core"
)
BENCHMARK = re.compile(r"benchmarks/(\w+)\.py|make bench NAME=(\w+)")
SOURCE = re.compile(
    r"<from: |tests/[\w/]+\.py|decisions/\d{4}|`joulie (?:demo|simulate|replay|energy)\b"
)
# Sections whose figures are settings, bounds or examples, and not measurements.
LIMITS = {
    "README.md": {"Joulie"},  # the packages of the lock
    "agent.md": {"What is not read", "When it is published", "While the broker is away"},
    "console.md": {"Access control"},
    "energy.md": {"Reports"},
    "events.md": {"Bounds", "Which sender may write which event"},
    "extender.md": {"What it refuses"},
    "faults.md": {"Messages"},
    "gpus.md": {"Cards that others give out"},
    "install.md": {"Archive", "Database and broker"},
    "operations.md": {"Metrics to watch"},
    "security.md": {"What a leaked credential can do"},
    "troubleshooting.md": {"`joulie status` prints STALE"},
    "three-brokers.md": {"A server with a damaged store"},
}


class Section(NamedTuple):
    page: str
    heading: str
    text: str


def sections() -> Iterator[Section]:
    for path in PAGES:
        if path.name not in GENERATED:
            page = "\n" + re.sub(r"^```.*?^```$", "", unmarked(path.read_text()), flags=re.M | re.S)
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
    named += [f"benchmarks/{name}.py" for name in re.findall(r"make bench NAME=(\w+)", text)]
    shown = set(re.findall(r"`(tests/[\w/]+\.py)`:\n\n```python", text))  # files to be written

    assert [name for name in named if name not in shown and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_benchmark_is_named_by_the_command_that_runs_it(page: Path) -> None:
    """Its module is no program: `python benchmarks/NAME.py` does nothing."""
    assert re.findall(r"`[^`\n]*benchmarks/(?!run\.py)\w+\.py[^`\n]*`", page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_figures_of_a_page_are_those_of_the_results(page: Path) -> None:
    text = page.read_text()

    assert renewed(text) == text, "make figures"


# What a benchmark is given, beside what it measures.
GIVEN = re.compile(r"\b(?:5,000|500) (?:\w+ )?a second|more than 20,000 a second")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_line_that_cites_a_benchmark_takes_its_figures_from_results(page: Path) -> None:
    cited = [line for line in unmarked(page.read_text()).splitlines() if BENCHMARK.search(line)]

    assert [line for line in cited if FIGURE.search(GIVEN.sub("", line))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_section_with_figures_of_results_says_when_they_were_measured(page: Path) -> None:
    for part in re.split(r"\n#+ ", page.read_text()):
        kinds = {
            (mark["kind"], mark["words"].split(";")[0].strip()) for mark in MARK.finditer(part)
        }
        files = {name for kind, name in kinds if kind in ("figure", "table")}
        dated = {read(RESULTS / f"{name}.json").commit for kind, name in kinds if kind == "from"}

        assert {read(RESULTS / f"{name}.json").commit for name in files} <= dated


def test_each_benchmark_is_cited_by_a_page() -> None:
    pages = [*PAGES, *(ROOT / "docs" / "decisions").glob("*.md")]
    cited = {name for page in pages for name in re.findall(BENCHMARK, page.read_text())}
    names = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {"run"}

    assert names - {first or second for first, second in cited} == set()


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_file_of_results_is_of_a_benchmark_and_is_cited(file: Path) -> None:
    assert (ROOT / "benchmarks" / f"{read(file).benchmark}.py").exists()
    assert any(f": {file.stem}" in page.read_text() for page in PAGES)
