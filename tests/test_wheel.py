"""The wheel holds what its programs import. Kits of tests and benchmarks are elsewhere."""

import ast
import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from joulie_cli.command_line.commands import COMMANDS, COMPONENTS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILT = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
# Modules that a file other than a module of the wheel names.
NAMED_BY = {
    "joulie_bus.broker.healthy": "deploy/chart/templates/nats.yaml",
    "joulie_bus.broker.user_passwords": "deploy/chart/templates/nats.yaml",
    "joulie_projections.decision_log.public_half": "deploy/chart/templates/archive.yaml",
}
BY_ALEMBIC = "joulie_migrations."  # finds `env` and `versions` by their folder


@functools.cache
def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to((ROOT / package).parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for package in BUILT
        for path in (ROOT / package).rglob("*.py")
    }


def mentioned(path: Path) -> Iterator[str]:
    """The names that a module imports, and those that it gives to `import_module`."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (module, *(f"{module}.{each.name}" for each in names))
            case ast.Constant(value=str(text)):
                yield text
            case _:
                pass


def started() -> set[str]:
    """The modules where a program begins."""
    project = PROJECT["project"]
    named = [*project["scripts"].values()]
    named += [each for group in project["entry-points"].values() for each in group.values()]
    commands = {f"joulie_cli.{group}.{each}" for group, names in COMMANDS.items() for each in names}
    return {
        *(name.partition(":")[0] for name in named),
        *(each for each in commands if each.rpartition(".")[2] not in COMPONENTS),
        *COMPONENTS.values(),
        *NAMED_BY,
        *(name for name in modules() if name.startswith(BY_ALEMBIC)),
        "joulie",  # what other programs import
    }


def reached(graph: Mapping[str, Iterable[str]], starts: Iterable[str]) -> set[str]:
    found, waiting = set[str](), [*starts]
    while waiting:
        name = waiting.pop()
        if name in graph and name not in found:
            found.add(name)
            waiting += [*graph[name], name.rpartition(".")[0]]
    return found


def test_a_program_imports_each_module_of_the_wheel() -> None:
    graph = {name: [*mentioned(path)] for name, path in modules().items()}

    assert len(graph) > 500
    assert started() - set(graph) == set()
    assert sorted(set(graph) - reached(graph, started())) == []


@pytest.mark.parametrize("module", NAMED_BY)
def test_the_file_that_starts_a_module_names_it(module: str) -> None:
    assert re.search(rf"-m,? \"?{re.escape(module)}\b", (ROOT / NAMED_BY[module]).read_text())
