"""What the documents promise exists, and what exists is documented."""

import ast
import contextlib
import io
import json
import re
import runpy
import shlex
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from joulie_bus.runtime.vital_tasks import VitalTask
from joulie_bus.streams.roles import GRANTS, Grant
from joulie_cli.command_line.commands import commands
from joulie_cli.command_line.parser import parsed
from joulie_extender.verbs.openapi import DOCUMENT
from joulie_operator.planning.policies import BUILT_IN
from joulie_projections.twin.cooling import model_names

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MAKE_TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands_in(text: str) -> list[list[str]]:
    """`joulie ...` as it stands in code: in fenced lines and between backquotes."""
    found = re.findall(r"(?:^\$ (?:\.venv/bin/)?|`)joulie ([^`\n]+)", text, re.MULTILINE)
    return [shlex.split(command) for command in found]


def listed(subjects: Sequence[str]) -> str:
    return " ".join(f"`{subject}`" for subject in subjects)


def denied(grant: Grant) -> str:
    return f" but not {listed(grant.deny)}" if grant.deny else ""


def test_the_reference_equals_what_the_program_generates() -> None:
    """In this process: a mutant of a setting is a change of a module in memory."""
    made = io.StringIO()
    with contextlib.redirect_stdout(made):
        runpy.run_path(str(ROOT / "docs" / "reference.py"), run_name="__main__")

    assert (ROOT / "docs" / "reference.md").read_text() == made.getvalue()


def test_there_are_few_settings_and_the_likely_ones_come_first() -> None:
    text = (
        (ROOT / "docs" / "reference.md").read_text().split("\n## Settings\n")[1].split("\n## ")[0]
    )
    first, *parts = text.split("### ")[1:]

    assert first.startswith("Settings that you are likely to set")
    assert len(re.findall(r"^\| `[A-Z_]+`", first, re.MULTILINE)) <= 12
    assert len(set(re.findall(r"^\| `([A-Z0-9_]+)`", "".join(parts), re.MULTILINE))) <= 85


def test_every_policy_and_cooling_model_is_documented() -> None:
    policies, twins = ((ROOT / "docs" / page).read_text() for page in ("policies.md", "twins.md"))

    assert [name for name in BUILT_IN if f"| `{name}` |" not in policies] == []
    assert [name for name in model_names() if f"`{name}`" not in twins] == []


@pytest.mark.parametrize(
    ("page", "at_least"), [("contributing/attacks.md", 80), ("contributing/fault-tests.md", 40)]
)
def test_every_test_that_a_page_of_attacks_or_faults_names_exists(page: str, at_least: int) -> None:
    text = (ROOT / "docs" / page).read_text()
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`", text)

    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).exists() or (name and f"def {name}" not in (ROOT / file).read_text())
    ]

    assert len(named) > at_least
    assert missing == []


def test_every_fault_has_a_test_or_needs_none() -> None:
    def faults(page: str) -> set[str]:
        rows = re.findall(r"^\| ([^`].*?) \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)
        return set(rows) - {"Fault", "Task"}

    tested, described = faults("contributing/fault-tests.md"), faults("faults.md")

    assert tested <= described
    assert len(described - tested) <= 4


def test_the_table_of_tasks_is_that_of_the_code() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \| .+ \| ([\w, -]+) \| (\w+) \|$",
        (ROOT / "docs" / "contributing" / "tasks.md").read_text(),
        re.MULTILINE,
    )

    assert rows == [
        (str(task), ", ".join(task.value.components), str(task.on_failure)) for task in VitalTask
    ]


def test_every_command_that_a_page_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    named = [(page_name(page), each) for page in PAGES for each in commands_in(page.read_text())]
    refused = [f"{page}: joulie {' '.join(each)}" for page, each in named if not is_command(each)]

    assert len(named) > 100
    assert refused == [], capsys.readouterr().err


def is_command(command: list[str]) -> bool:
    words = [word for word in command if word.isupper() is False]
    if words[0] not in commands():
        return words[0] in {"COMMAND", "--help", "--version"}
    if len(words) == 1:
        return True  # its name alone; what it needs is on its own page
    try:
        parsed([word.strip("`") for word in command if "..." not in word])
    except SystemExit:  # the parser has printed why
        return False
    return True


def test_every_path_that_the_extender_serves_is_on_its_page() -> None:
    text = (ROOT / "docs" / "extender.md").read_text()

    named = set(re.findall(r"`(?:(?:GET|POST) )?(/[^`]*)`", text))

    assert set(json.loads(DOCUMENT)["paths"]) - named == set()


def test_every_make_target_that_a_page_names_exists() -> None:
    named = matches(r"(?:^\$ |`)make ([a-z]+)")

    assert {target for _, target in named} >= {"demo", "test"}
    assert [(page, target) for page, target in named if target not in MAKE_TARGETS] == []


def matches(pattern: str) -> list[tuple[Path, str]]:
    """Each page with what the pattern finds in it."""
    wanted = re.compile(pattern, re.MULTILINE)
    return [(page, found) for page in PAGES for found in wanted.findall(page.read_text())]


def test_every_relative_link_leads_somewhere() -> None:
    links = [each for each in matches(r"\]\(([^)#]+)\)") if "://" not in each[1]]

    assert len(links) > 100
    assert [(page, link) for page, link in links if not (page.parent / link).exists()] == []


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors_of(page: Path) -> set[str]:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)}


def test_every_anchor_of_a_link_is_a_heading() -> None:
    links = matches(r"\]\(([^):]*#[^)]+)\)")
    broken = [(page, link) for page, link in links if not has_heading(page, *link.split("#", 1))]

    assert len(links) > 20
    assert broken == []


def has_heading(page: Path, file: str, anchor: str) -> bool:
    return anchor in anchors_of((page.parent / file).resolve() if file else page)


def classes_defined() -> Counter[str]:
    sources = [path.read_text() for path in ROOT.glob("*/joulie*/**/*.py")]
    return Counter(name for text in sources for name in re.findall(r"^class (\w+)", text, re.M))


GLOSSARY = re.findall(
    r"^\| (.+?) \| (.+?) \| `(\w+)` \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE
)


def test_every_class_of_the_glossary_exists_exactly_once() -> None:
    defined = classes_defined()

    wrong = {name: defined[name] for _, _, name in GLOSSARY if defined[name] != 1}

    assert len(GLOSSARY) >= 30
    assert wrong == {}


def test_every_term_of_the_glossary_is_one_sentence_in_order() -> None:
    terms = [term for term, _, _ in GLOSSARY]

    assert terms == sorted(set(terms), key=str.lower)
    assert [text for _, text, _ in GLOSSARY if not re.fullmatch(r"[^.]+\.", text)] == []


def test_every_file_in_the_picture_of_the_path_exists() -> None:
    picture = (ROOT / "docs" / "contributing" / "where-is-it.md").read_text().split("```")[1]
    named = set(re.findall(r"[\w/]+\.py", picture))
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("*/joulie*/**/*.py")}

    missing = [
        name for name in named if not any(f.endswith(f"/{name}") or f == name for f in files)
    ]

    assert missing == []


# Pages whose examples need a console, an event or an archive, which these tests run:
# tests/console/client/test_page.py, tests/bus/events/test_adding.py, tests/audit/columns,
# tests/deploy/test_audit_job.py.
ELSEWHERE = ("client.md", "add-an-event.md", "sql.md", "audit.md")
WITH_PYTHON = [
    page for page in PAGES if page.name not in ELSEWHERE and "```python\n" in page.read_text()
]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=page_name)
def test_the_python_on_a_page_runs(page: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(code, page_name(page), "exec"), {})


def test_every_command_named_in_an_error_or_a_hint_exists() -> None:
    sources = [path.read_text() for path in ROOT.glob("*/joulie*/**/*.py")]
    named = {word for text in sources for word in re.findall(r"`joulie ([a-z][a-z-]*)", text)}

    assert named - set(commands()) == set()


def test_the_page_on_security_shows_what_every_role_may_do() -> None:
    rows = [
        f"| `{role}` | {listed(grant.publish)}{denied(grant)} | {listed(grant.subscribe)} |"
        for role, grant in GRANTS.items()
    ]
    page = (ROOT / "docs" / "security.md").read_text()

    assert "\n".join(["|---|---|---|", *rows, "\n"]) in page


def test_the_lock_holds_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()

    assert "://" not in lock
    assert len(re.findall(r"^[a-z0-9-]+==", lock, re.MULTILINE)) > 40
    assert all("--hash=sha256:" in entry for entry in re.split(r"\n(?=[a-z0-9-]+==)", lock))


def test_every_answer_of_where_is_it_exists() -> None:
    rows = re.findall(
        r"^\| .*\? \| `([\w/]+\.py)` \| `([\w.]+)` \|$",
        (ROOT / "docs" / "contributing" / "where-is-it.md").read_text(),
        re.MULTILINE,
    )

    missing = [f"{file}: {name}" for file, name in rows if name not in defined_in(ROOT / file)]

    assert missing == []
    assert len(rows) == 42


def defined_in(path: Path) -> set[str]:
    """Functions and classes of a module, and the methods of its classes."""
    if not path.exists():
        return set()
    outer = ast.parse(path.read_text()).body
    named = [node for node in outer if isinstance(node, DEFINITIONS)]
    methods = {
        f"{node.name}.{inner.name}"
        for node in named
        if isinstance(node, ast.ClassDef)
        for inner in node.body
        if isinstance(inner, DEFINITIONS)
    }
    return {node.name for node in named} | methods


def test_the_decisions_are_numbered_without_gaps_or_repeats() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))

    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


def test_the_readme_has_the_two_commands_and_what_each_installs() -> None:
    readme = (ROOT / "README.md").read_text()
    after_the_picture = readme[readme.index("(docs/console.png)") :].splitlines()[:10]

    for command in ("make demo", "make test"):
        [row] = [line for line in after_the_picture if line.startswith(f"| `{command}`")]
        assert " packages and " in row
        assert re.search(r"[0-9] [MG]B", row)


def test_the_page_on_the_uninstallation_names_every_crd() -> None:
    page = (ROOT / "docs/install.md").read_text().partition("## Uninstall")[2]
    names = [path.stem for path in (ROOT / "deploy/crds").glob("*.yaml")]

    assert len(names) == 3
    for name in names:
        group, _, plural = name.partition("_")
        assert f"{plural}.{group}" in page


def test_no_line_of_the_changelog_stands_there_twice() -> None:
    """Git merges it by keeping the lines of both sides."""
    bullets = [
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if "- " in line[:2]
    ]

    assert [line for line, count in Counter(bullets).items() if count > 1] == []
