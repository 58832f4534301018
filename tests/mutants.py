"""Mutates the code that decides, one change at a time, and reports what no test notices.

    make mutants                                   every mutant of every package, for hours
    python tests/mutants.py fold --sample 40       40 mutants of one package
    python tests/mutants.py decide --only filter.py

A mutant is one changed comparison, operator, constant, condition or returned value. The tests of
its package run on it until the first failure, each time in a fork of a process that has imported
the libraries. A survivor shows a line that no test holds, or a change without an effect.
"""

import argparse
import ast
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
import sqlalchemy

ROOT = Path(__file__).parents[1]
PRELOADED = (msgspec, np, sqlalchemy)  # inherited by each fork
TIMEOUT_S = 300  # a mutant may loop forever
# Of each package: its folder, and the tests that hold it.
PACKAGES = {
    "decide": ("extender/joulie_extender/decide", ["tests/extender/decide"]),
    "gpu": ("extender/joulie_extender/gpu", ["tests/extender/gpu"]),
    "planning": ("operator/joulie_operator/planning", ["tests/operator/planning"]),
    "fold": (
        "projections/joulie_projections/fold",
        ["tests/projections/fold", "tests/projections/state"],
    ),
    "chain": ("projections/joulie_projections/chain", ["tests/projections/chain"]),
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}


class Place(NamedTuple):
    """A node of the tree of a module, and one of its changes."""

    package: str
    file: Path
    node: int
    change: int


class Mutant(NamedTuple):
    file: Path
    line: int
    what: str
    source: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.what}"


def places_in(package: str, file: Path) -> Iterator[Place]:
    for number, node in enumerate(ast.walk(ast.parse(file.read_text()))):
        for change, _ in enumerate(changed(node)):
            yield Place(package, file, number, change)


def mutant_at(place: Place) -> Mutant:
    tree = ast.parse(place.file.read_text())
    node = next(each for at, each in enumerate(ast.walk(tree)) if at == place.node)
    before, line = ast.unparse(node).splitlines()[0], getattr(node, "lineno", 0)
    new = list(changed(node))[place.change]
    after = ast.unparse(new).splitlines()[0]
    replace(tree, node, new)
    return Mutant(place.file, line, f"{before} -> {after}", ast.unparse(tree))


def changed(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """What the node may be replaced by."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            yield ast.Constant(not value if isinstance(value, bool) else value + 1)
        case ast.If(test=test):
            yield ast.If(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.IfExp(test=test):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case _:
            yield from _other_operation(node)


def _other_operation(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(ops=[only]) if type(only) in COMPARISONS:
            yield ast.Compare(node.left, [COMPARISONS[type(only)]()], node.comparators)
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            yield ast.BinOp(node.left, OPERATORS[type(op)](), node.right)
        case ast.BoolOp(op=op):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case _:
            pass


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def replace(tree: ast.AST, old: ast.AST, new: ast.expr | ast.stmt) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(each is old for each in value):
                setattr(parent, name, [new if each is old else each for each in value])
    ast.fix_missing_locations(tree)


class MutatedLoader(importlib.abc.InspectLoader):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def get_source(self, fullname: str) -> str:
        return self._mutant.source

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._mutant.file)
        super().exec_module(module)


class MutatedFinder(importlib.abc.MetaPathFinder):
    """Finds the mutant instead of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = ".".join(mutant.file.relative_to(ROOT).with_suffix("").parts[1:])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        found = PathFinder.find_spec(fullname, path)
        spec = importlib.util.spec_from_loader(fullname, MutatedLoader(self._mutant))
        assert found is not None
        return spec


def run_tests(package: str, mutant: Mutant | None) -> bool:
    """Whether all tests pass, in a fork."""
    child = os.fork()
    if child == 0:
        _run_in_fork(package, mutant)
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _run_in_fork(package: str, mutant: Mutant | None) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    if mutant is not None:
        sys.meta_path.insert(0, MutatedFinder(mutant))
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not drill"]
    words += ["--hypothesis-profile=quick", *_tests_of(package, mutant)]
    os._exit(int(pytest.main(words)))


def _tests_of(package: str, mutant: Mutant | None) -> list[str]:
    """The tests of the module first: they kill most mutants."""
    folders = PACKAGES[package][1]
    own = [f"{folder}/test_{mutant.file.name}" for folder in folders] if mutant else []
    return [test for test in own if (ROOT / test).exists()] + folders


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("packages", nargs="*", choices=[*PACKAGES, []], default=[])
    parser.add_argument("--sample", type=int, help="so many mutants of each package")
    parser.add_argument("--only", default="", help="a module of the package, such as filter.py")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.chdir(ROOT)
    survived = total = 0
    for package in args.packages or PACKAGES:
        if not run_tests(package, None):
            print(f"{package}: its tests fail without a mutant. No mutant was run.")
            return 2
        chosen = _chosen(package, args)
        left = [mutant for mutant in chosen if run_tests(package, mutant) and not print(mutant)]
        print(f"{package}: {len(chosen) - len(left)} of {len(chosen)} mutants were noticed")
        survived, total = survived + len(left), total + len(chosen)
    print(f"{total - survived} of {total}: {100 * (total - survived) / max(total, 1):.1f} %")
    return 1 if survived else 0


def _chosen(package: str, args: argparse.Namespace) -> list[Mutant]:
    files = sorted((ROOT / PACKAGES[package][0]).glob("*.py"))
    wanted = [
        file for file in files if file.name != "__init__.py" and file.name.endswith(args.only)
    ]
    places = [place for file in wanted for place in places_in(package, file)]
    if args.sample is not None and args.sample < len(places):
        places = random.Random(args.seed).sample(places, args.sample)
    return list(map(mutant_at, places))


if __name__ == "__main__":
    sys.exit(main())
