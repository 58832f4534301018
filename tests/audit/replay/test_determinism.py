"""The same facts give the same decisions in any process, hash order and Python version."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "audit" / "golden"
FINGERPRINT = ROOT / "tests" / "audit" / "fingerprint.py"
NEEDED = "import msgspec, numpy, sqlalchemy, cryptography, nats, alembic, structlog"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]


def contract(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = next(each for each in CONTRACTS if each["name"] == name)
    return found


COMPUTES = contract("The thinking does no I/O and knows no clock")


def sources_of(module: str) -> list[Path]:
    """The file of a module, or all files of a package."""
    path = ROOT / module.split(".", 1)[0].removeprefix("joulie_") / module.replace(".", "/")
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


# The modules that replay calls; a simulation may get a clock and random numbers as arguments.
REPLAYED = {
    str(file.relative_to(ROOT)): file
    for name in COMPUTES["source_modules"]
    if "simulator" not in name
    for file in sources_of(name)
}


# --- no iteration over sets -------------------------------------------------------------------

MAKES_SETS = {"set", "frozenset"}
ORDER_FREE = {"sorted", "len", "sum", "min", "max", "any", "all", "set", "frozenset", "fsum"}


class SetIterations(ast.NodeVisitor):
    """Finds iterations over sets within one file: their order is not defined."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self._sets: set[str] = set()

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._is_set(node.value):
            self._sets |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._note(node.target, node.annotation)
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        if node.annotation is not None:
            self._note(ast.Name(node.arg), node.annotation)

    def visit_For(self, node: ast.For) -> None:
        self._check(node.iter)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        harmless = name in ORDER_FREE or getattr(node.func, "attr", "") in {"update", "issubset"}
        for argument in node.args:
            if harmless and isinstance(argument, ast.GeneratorExp):
                self.visit(argument.elt)  # safe in any order
            elif not harmless:
                self._check(argument) if name in {"list", "tuple", "enumerate", "iter"} else None
                self.visit(argument)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._check(node.iter)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        self._check(node.value)

    def _check(self, node: ast.expr) -> None:
        if self._is_set(node):
            self.found.append(node.lineno)

    def _note(self, target: ast.expr, annotation: ast.expr) -> None:
        named = ast.unparse(annotation).split("[")[0]
        if named in MAKES_SETS and isinstance(target, ast.Name):
            self._sets.add(target.id)

    def _is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name(id=name):
                return name in self._sets
            case ast.Call(func=ast.Name(id=name)):
                return name in MAKES_SETS
            case ast.BinOp(left=left, right=right):
                return self._is_set(left) or self._is_set(right)
            case _:
                return False


def set_iterations(source: str) -> list[int]:
    visitor = SetIterations()
    visitor.visit(ast.parse(source))
    return visitor.found


def test_modules_that_compute_do_not_iterate_over_sets() -> None:
    found = {name: set_iterations(file.read_text()) for name, file in REPLAYED.items()}

    assert len(found) > 100
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "names = {a for a in b}\nfor x in names: pass",
        "def f(names: set[str]): return [n for n in names]",
        "names: frozenset[str] = z\nout = list(names)",
        "a = {1}\nb = [*a]",
        "a = {1}\nfor x in a | b: pass",
    ],
)
def test_an_iteration_over_a_set_is_found(source: str) -> None:
    assert len(set_iterations(source)) == 1


@pytest.mark.parametrize(
    "source",
    ["for x in sorted({1, 2}): pass", "a = {1}\n1 in a", "a = {1}\nall(x for x in a)", "{**a}"],
)
def test_order_free_uses_of_a_set_are_allowed(source: str) -> None:
    assert set_iterations(source) == []


# --- no hidden inputs -------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["time", "os", "secrets", "uuid"])
def test_the_contract_forbids_clocks_and_the_environment(module: str) -> None:
    assert module in COMPUTES["forbidden_modules"]


def test_the_linter_forbids_to_ask_datetime_for_the_time() -> None:
    banned = PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]

    assert {"datetime.datetime.now", "datetime.datetime.utcnow"} <= set(banned)


def test_the_contract_forbids_random_numbers() -> None:
    assert "random" in contract("What is replayed throws no dice")["forbidden_modules"]


def test_modules_that_compute_do_not_call_hash_or_id() -> None:
    """`hash` and `id` differ between processes."""
    calls = [
        (name, node.func.id, node.lineno)
        for name, file in REPLAYED.items()
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]

    assert len(calls) > 1000
    assert [call for call in calls if call[1] in {"hash", "id"}] == []


# --- other processes, other Pythons -----------------------------------------------------------


def fingerprint(python: str, **environ: str) -> str:
    rooms = [str(ROOT / name) for name in ("bus", "migrations", "projections", "extender")]
    rooms += [str(ROOT / name) for name in ("operator", "audit", "tests/kit", "tests/kit/broker")]
    reported = {**os.environ, "PYTHONPATH": os.pathsep.join(rooms), **environ}
    done = subprocess.run(
        [python, str(FINGERPRINT), str(GOLDEN)], env=reported, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def other_pythons() -> Iterator[str]:
    """Other Python versions with the dependencies; JOULIE_OTHER_PYTHON adds one."""
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = [os.environ.get("JOULIE_OTHER_PYTHON"), *_on_path(ours)]
    for python in dict.fromkeys(filter(None, found)):
        if subprocess.run([python, "-c", NEEDED], capture_output=True).returncode == 0:
            yield python


def _on_path(ours: str) -> Iterator[str | None]:
    return (shutil.which(f"python3.{n}") for n in range(11, 16) if f"3.{n}" != ours)


@pytest.mark.slow
@pytest.mark.long
def test_another_hash_seed_gives_the_same_decisions() -> None:
    seeds = [fingerprint(sys.executable, PYTHONHASHSEED=seed) for seed in ("0", "1", "424242")]

    assert len(seeds[0]) == 65
    assert seeds == [seeds[0]] * 3


def test_another_python_version_gives_the_same_decisions() -> None:
    pythons = list(other_pythons())
    if not pythons:
        pytest.skip("no other Python has the dependencies; JOULIE_OTHER_PYTHON=... names one")
    here = fingerprint(sys.executable)

    assert {python: fingerprint(python) for python in pythons} == dict.fromkeys(pythons, here)
