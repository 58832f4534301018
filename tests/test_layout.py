"""The folder `operator/` shares its name with a standard module; keep them apart."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Set
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILT = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
PUBLIC = "console/joulie"  # what other programs import; every other package is `joulie_FOLDER`
FOLDERS = [package.split("/")[0] for package in BUILT if package != PUBLIC]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_top_level_folder_is_a_source_root_and_not_a_package(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()
    assert [path.name for path in (ROOT / folder).iterdir() if path.suffix == ".py"] == []


@pytest.mark.parametrize("start", [["-S", "-c"], ["-I", "-S", "-c"], ["-c"]])
def test_the_standard_operator_survives_at_the_root(start: list[str]) -> None:
    # -S: without site, nothing has imported `operator` before the root joins sys.path.
    code = "import operator, collections; assert operator.add(1, 2) == 3"

    subprocess.run([sys.executable, *start, code], cwd=ROOT, check=True)


def test_the_standard_operator_survives_inside_the_folder_of_the_same_name() -> None:
    code = "import operator, collections; assert operator.add(1, 2) == 3"

    subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT / "operator", check=True)


def test_every_room_is_built_checked_and_held_by_the_contracts() -> None:
    tool = PROJECT["tool"]
    rooms = sorted([*(f"joulie_{folder}" for folder in FOLDERS), "joulie"])
    layers = {
        room.strip()
        for layer in tool["importlinter"]["contracts"][0]["layers"]
        for room in layer.split("|")
    }

    found = [str(path.relative_to(ROOT)) for path in ROOT.glob("[a-z]*/joulie*/")]
    assert sorted(found) == sorted([*(f"{folder}/joulie_{folder}" for folder in FOLDERS), PUBLIC])
    assert sorted(found) == sorted(BUILT)
    assert sorted(tool["importlinter"]["root_packages"]) == rooms
    assert sorted(layers) == rooms
    assert sorted(set(FOLDERS) - set(tool["mypy"]["mypy_path"])) == []
    assert sorted(set(FOLDERS) - set(tool["basedpyright"]["include"])) == []


PACKAGES = sorted(path.parent for path in ROOT.glob("[a-z]*/joulie*/**/__init__.py"))
MOST_MODULES = 25  # a folder that is read at one glance
ONE_FILE_EACH = {"versions"}  # one module per step of the schema


def test_a_package_holds_at_most_25_modules() -> None:
    modules = {path: len(list(path.glob("*.py"))) - 1 for path in PACKAGES}
    full = [
        path
        for path, held in modules.items()
        if held > MOST_MODULES and path.name not in ONE_FILE_EACH
    ]

    assert len(modules) > 50
    assert full == []


KITS = [ROOT / "benchmarks/kit", ROOT / "tests/kit", *ROOT.glob("tests/kit/[a-z]*/")]


@pytest.mark.parametrize("folder", KITS, ids=lambda folder: Path(folder).name)
def test_a_kit_holds_at_most_25_modules(folder: Path) -> None:
    assert 0 < len(list(folder.glob("*.py"))) <= MOST_MODULES


def test_the_docstring_of_a_package_says_what_belongs_there() -> None:
    said = {
        path: ast.get_docstring(ast.parse((path / "__init__.py").read_text())) or ""
        for path in PACKAGES
    }
    parts = ("Not here:", "In:", "Out:")
    short = [
        path
        for path, text in said.items()
        if len(path.relative_to(ROOT).parts) > 2
        and path.name not in ONE_FILE_EACH
        and not all(part in text for part in parts)
    ]

    assert [path for path, text in said.items() if not text] == []
    assert short == []


NO_IO = "No I/O, no clock."
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]


def test_the_packages_without_io_say_so_and_are_held_by_the_contract() -> None:
    name = "The thinking does no I/O and knows no clock"
    held = next(each["source_modules"] for each in CONTRACTS if each["name"] == name)
    packages = {".".join(path.relative_to(ROOT).parts[1:]): path for path in PACKAGES}
    texts = {name: (path / "__init__.py").read_text() for name, path in packages.items()}

    assert {each for each, text in texts.items() if NO_IO in text} == set(held) & set(packages)


def test_no_module_calls_itself_pure_because_its_package_says_so() -> None:
    pure = re.compile(r"\b[Pp]ure\b")
    texts = {path: path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    found = {path: ast.parse(text) for path, text in texts.items() if pure.search(text)}

    assert [
        path for path, tree in found.items() if pure.search(ast.get_docstring(tree) or "")
    ] == []


LONGEST = 40  # lines of a function


@pytest.mark.parametrize("folder", [*FOLDERS, "tests", "benchmarks", "docs"])
def test_no_function_is_longer_than_forty_lines(folder: str) -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > LONGEST
    ]

    assert long == []


CONNECT = "sqlite3.connect("


# Its block ends a transaction and leaves the connection to the garbage collector.
@pytest.mark.parametrize("folder", [*FOLDERS, "tests", "benchmarks", "docs"])
def test_no_block_leaves_a_connection_of_sqlite_open(folder: str) -> None:
    left = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if CONNECT in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.With)
        for item in node.items
        if ast.unparse(item.context_expr).startswith(CONNECT)
    ]

    assert left == []


def test_no_law_fails_by_the_time_that_it_takes(request: pytest.FixtureRequest) -> None:
    laws = {
        item.name: getattr(item.obj, "_hypothesis_internal_use_settings", None)
        for item in request.session.items
        if isinstance(item, pytest.Function)
    }
    timed = [
        name
        for name, law in laws.items()
        if isinstance(law, hypothesis.settings)
        and (
            law.deadline is not None
            or hypothesis.HealthCheck.too_slow not in law.suppress_health_check
        )
    ]

    assert timed == []


SHORTEST_S = 60  # a machine with other work may stop a process for ten of these
WAITS = ("asyncio.timeout(", "asyncio.wait(", "wait_for(")


# A shorter time is that of a wait which is to run out.
def test_no_test_waits_for_less_than_a_busy_machine_may_need() -> None:
    hurried = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if any(wait in (text := path.read_text()) for wait in WAITS)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and 1 <= waits_s(node) < SHORTEST_S
    ]

    assert hurried == []


def waits_s(call: ast.Call) -> float:
    """The number of seconds that a call waits at most, if it is written there; else 0."""
    if not f"{ast.unparse(call.func)}(".endswith(WAITS):
        return 0
    named = [word.value for word in call.keywords if word.arg == "timeout"]
    match [*call.args[-1:], *named]:
        case [*_, ast.Constant(value=int() | float() as seconds)]:
            return float(seconds)
        case _:
            return 0


def test_every_fixture_and_kit_that_marks_a_test_as_slow_exists() -> None:
    conftest = (ROOT / "tests/conftest.py").read_text()
    names = {
        name: set(re.findall(r'"(\w+)"', listed))
        for name, listed in re.findall(r"^(SLOW_\w+) = \{(.*)\}$", conftest, re.MULTILINE)
    }
    code = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    fixtures = set(re.findall(r"^@pytest\.fixture.*\n(?:async )?def (\w+)", code, re.MULTILINE))
    kits = {path.stem for path in (ROOT / "tests/kit").rglob("*.py")}

    assert names["SLOW_FIXTURES"] - fixtures == set()
    assert names["SLOW_KITS"] - kits == set()


def test_the_changelog_has_a_section_for_changes_and_one_for_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    unreleased, newest, *_ = re.findall(r"^## (.+)$", changelog, re.MULTILINE)

    assert unreleased == "Unreleased"
    assert newest.split()[0] == PROJECT["project"]["version"]


# Rows of removed nodes are reused: who turns a row into a name must know the position.
MAY_READ_ROWS = {
    "joulie_audit/columns/log.py",  # a row beside the position of its view
    "joulie_bus/events/decisions.py",  # declares them
    "joulie_bus/events/packing.py",  # counts them
    "joulie_projections/fold/node_facts.py",  # assigns them
    "joulie_projections/fold/pod_facts.py",
    "joulie_projections/fold/sequence.py",
    "joulie_projections/store/row_name_table.py",  # keeps their names by position
    "joulie_projections/twin/row_names.py",
    "joulie_projections/twin/columns.py",  # of one position
    "joulie_projections/twin/in_flight.py",
    "joulie_extender/answering/in_flight.py",  # a guess, for 20 s
    "joulie_projections/chain/outcomes.py",  # compares rows, which the log has checked
    "joulie_projections/decision_log/last_answers.py",
    "joulie_extender/debug/recent_answers.py",  # their size
    "joulie_extender/decision_log/repeats.py",  # of answers within a minute
    "joulie_answers/views/cluster_view.py",  # the id of a node, beside its name
    "joulie_answers/readers/attempts.py",  # beside the state of the same position
}
# With the columns of the position of a decision, as a replay has them.
MAY_NAME_BY_COLUMNS = {
    "joulie_extender/decide/decide.py",
    "joulie_audit/questions/explain.py",
    "joulie_audit/recompute/added_watts.py",
    "joulie_answers/views/decision_text.py",
}


@functools.cache
def sources() -> dict[str, ast.Module]:
    """Those that may read a row or translate one."""
    return {
        "/".join(path.relative_to(ROOT).parts[1:]): ast.parse(text)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if re.search("ordinal|names_of", text := path.read_text())
    }


def test_a_row_is_translated_to_a_name_only_together_with_a_position() -> None:
    reading, naming = set(), set()
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("ordinal", "ordinals"):
                reading.add(path)
            if isinstance(node, ast.Call) and _name_of(node.func).endswith("names_of"):
                naming.add(path)

    assert reading == MAY_READ_ROWS
    assert {
        path for path in naming if "names_of" in imported_from_decide(path)
    } == MAY_NAME_BY_COLUMNS


def _name_of(called: ast.expr) -> str:
    match called:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def imported_from_decide(path: str) -> set[str]:
    tree = sources()[path]
    found = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "joulie_extender.decide.decide"
        for alias in node.names
    }
    return found | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


# A question is answered in one place: who builds a part of an answer, answers.
SCHEMA = ROOT / "answers/joulie_answers/schema/responses.py"
# What only a console knows: its stream, its map, how its parts are, the report of its process.
OF_THE_CONSOLE = {
    *("Cluster", "Map", "MapChanges", "PowerPoint", "PowerSeries", "Reach", "Notice", "Warning"),
    *("Problem", "Report"),
}
BUILT_TWICE = {
    "Candidate": 2,  # of an entry with all its candidates, and of a pod's newest attempt
}


def test_each_part_of_an_answer_is_built_by_one_module() -> None:
    declared = {
        node.name for node in ast.parse(SCHEMA.read_text()).body if isinstance(node, ast.ClassDef)
    } - {"Item", "Answer", "Stamp", *OF_THE_CONSOLE}
    builders: dict[str, set[str]] = {name: set() for name in declared}
    for path, name in builders_in(declared):
        builders[name].add(path)

    twice = {
        name: found for name, found in builders.items() if len(found) > BUILT_TWICE.get(name, 1)
    }
    elsewhere = {
        name: found
        for name, found in builders.items()
        if any(not path.startswith("joulie_answers/") for path in found)
    }
    assert (twice, elsewhere) == ({}, {})
    assert len([name for name, found in builders.items() if found]) > 30


def builders_in(names: Set[str]) -> Iterator[tuple[str, str]]:
    """Modules of the product that import the answers, and the parts that each builds."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if "schema.responses" not in (text := path.read_text()) and "schema import" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if _is_query(node):
                    continue
                if isinstance(node, ast.Call) and (name := _name_of(node.func)) in names:
                    yield "/".join(path.relative_to(ROOT).parts[1:]), name


def _is_query(node: ast.AST) -> bool:
    """Queries have the names of some answers, and are always written with their module."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="q" | "requests" | "queries"))):
            return True
        case _:
            return False


# Their commands only choose a source: the local data, a console, or one behind an API server.
ASKED = [
    "cli/joulie_cli/ask/gpus.py",
    "cli/joulie_cli/ask/decisions.py",
    "cli/joulie_cli/ask/energy.py",
    "cli/joulie_cli/ask/explain.py",
    "cli/joulie_cli/ask/plans.py",
    "cli/joulie_cli/ask/status.py",
    "cli/joulie_cli/ask/twin.py",
    "cli/joulie_cli/asking/questions.py",
    "cli/joulie_cli/kubectl/__main__.py",
]


ROOMS_OF_STATE = [
    path
    for path in (ROOT / "projections/joulie_projections").iterdir()
    if path.is_dir() and path.name != "component"
]


@pytest.mark.parametrize("file", ASKED)
def test_a_command_that_asks_computes_no_answer(file: str) -> None:
    imported = {
        node.module or ""
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    computing = (
        *(f"joulie_projections.{room.name}" for room in ROOMS_OF_STATE),
        "joulie_audit",
        "joulie_answers.readers",
        "joulie_answers.views",
    )

    assert [module for module in imported if module.startswith(tuple(computing))] == []


WITH_ONE_MEANING = ("Cards", "Inputs", "Labels", "Reader", "Refusal", "State", "Verb")


@pytest.mark.parametrize("name", WITH_ONE_MEANING)
def test_a_common_word_names_one_class_or_type(name: str) -> None:
    declared = [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if re.search(rf"^ *class {name}\b|^{name}(: TypeAlias)? = ", path.read_text(), re.MULTILINE)
    ]

    assert len(declared) <= 1
