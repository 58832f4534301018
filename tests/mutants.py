"""Mutates the code that decides, one change at a time, and reports what no test notices.

    make mutants                                   every mutant of every package, for hours
    python tests/mutants.py fold --sample 40       40 mutants of one package
    python tests/mutants.py decide --only filter.py

A mutant is one changed comparison, operator, constant, condition or returned value. The tests of
its package are collected once, and run once to learn which of them reach which lines. Each mutant
is then a fork of that process: its function gets the changed code, and the tests that reach the
changed line run, the fastest first, until one fails. Code that runs at import, such as a constant
of a module, is imported anew in a fork that has imported the libraries only, and meets all tests.
A survivor shows a line that no test holds, or a change without an effect.
"""

import argparse
import ast
import contextlib
import enum
import gc
import importlib
import importlib.abc
import importlib.util
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import IO, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import pytest
import sqlalchemy

ROOT = Path(__file__).parents[1]
PRELOADED = (msgspec, np, sqlalchemy)  # inherited by each fork
TIMEOUT_S, CPU_S = 300, 60  # a mutant may wait or loop forever
FEW = 10  # examples of a law
OFTEN = 1000  # lines of one function in one test: tracing more of them takes long
EXPLORE_S = 24 * 3600
OUTPUT = os.dup(1)  # the tests' own output is dropped
# The product's packages, each before those that import it; and what else takes long to import.
LAYERS = (
    "joulie_bus",
    "joulie_migrations",
    "joulie_projections",
    "joulie_extender",
    "joulie_operator",
)
OTHERS = {
    "anyio", "cryptography", "httpx", "hypothesis", "msgspec", "nats", "numpy", "prometheus_client",
    "psycopg", "rich", "sqlalchemy", "starlette", "structlog", "uvicorn", "alembic", "asyncio",
}  # fmt: skip
SETTINGS = "_hypothesis_internal_use_settings"
Result = TypeVar("Result")


class Package(NamedTuple):
    """The pattern of its files, and the tests that hold them."""

    files: str
    tests: list[str]


# Generates every setting with its default and its bounds.
REFERENCE = "tests/test_docs.py::test_the_reference_equals_what_the_program_generates"
SCORING = [
    "tests/extender/decide",
    "tests/extender/catalogue/test_catalogue.py",
    "tests/extender/catalogue/test_points.py",
    "tests/extender/gpu",
    "tests/audit/questions/test_explain.py",
    "tests/audit/replay/test_golden.py",
    REFERENCE,
]
# They read the sources themselves, which no mutant changes.
OF_SOURCES = ["tests/extender/catalogue/test_catalogue.py::test_only_the_catalogue_lists_terms"]
PACKAGES = {
    "decide": Package("extender/joulie_extender/decide/*.py", SCORING),
    "rules": Package("extender/joulie_extender/rules/*.py", SCORING),
    "terms": Package("extender/joulie_extender/terms/*.py", SCORING),
    "catalogue": Package("extender/joulie_extender/catalogue/*.py", SCORING),
    "gpu": Package("extender/joulie_extender/gpu/*.py", ["tests/extender/gpu"]),
    "planning": Package(
        "operator/joulie_operator/planning/*.py",
        [
            "tests/operator/planning",
            "tests/operator/test_settings.py",
            "tests/audit/questions/test_next_plan.py",
        ],
    ),
    "fold": Package(
        "projections/joulie_projections/fold/*.py",
        [
            "tests/projections/fold",
            "tests/projections/state",
            "tests/projections/projector/test_quarantine.py",
            "tests/projections/projector/test_refused.py",
        ],
    ),
    "chain": Package(
        "projections/joulie_projections/chain/*.py",
        [
            "tests/projections/chain",
            "tests/projections/decision_log",
            "tests/projections/witness",
        ],
    ),
}
# Sizes of caches and the level of a compression: they change no result.
FREE = {"CACHED_SHAPES", "SHAPES_SEEN_ONCE", "CACHED_REQUESTS", "LEVEL"}
# What these arguments change is no behaviour that a correct program shows: they make objects
# smaller or immutable, assert that two lengths are equal, or bound a cache.
WITHOUT_EFFECT = {"frozen", "slots", "gc", "weakref", "weakref_slot", "repr", "maxsize"}
LARGE = 100
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

    file: Path
    node: int
    change: int


class Mutant(NamedTuple):
    file: Path
    lines: range  # of the smallest statement around the change
    what: str
    code: CodeType

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.lines.start}: {self.what}"


def places_in(file: Path) -> Iterator[Place]:
    tree = ast.parse(file.read_text())
    left_out = set(map(id, _without_effect(tree)))
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in left_out:
            for change, _ in enumerate(changed(node)):
                yield Place(file, number, change)


def _without_effect(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg=str() as name) if name in WITHOUT_EFFECT:
                yield from ast.walk(node)
            case ast.Call(func=ast.Name(id="zip"), keywords=[strict]):
                yield from ast.walk(strict)
            case ast.Assign(targets=[ast.Name(id=name)]) if name in FREE:
                yield from ast.walk(node)
            case ast.arg(annotation=ast.expr() as note) | ast.AnnAssign(annotation=note):
                yield from ast.walk(note)
            case ast.FunctionDef(returns=ast.expr() as note):
                yield from ast.walk(note)
            case _:
                pass


def mutant_at(place: Place) -> Mutant:
    tree = ast.parse(place.file.read_text())
    node = next(each for at, each in enumerate(ast.walk(tree)) if at == place.node)
    lines = _lines_around(tree, node)
    before = ast.unparse(node).splitlines()[0]
    new = ast.copy_location(list(changed(node))[place.change], node)
    after = ast.unparse(new).splitlines()[0]
    replace(tree, node, new)
    return Mutant(place.file, lines, f"{before} -> {after}", _compiled(tree, place.file))


def _compiled(tree: ast.Module, file: Path) -> CodeType:
    return compile(tree, str(file), "exec", dont_inherit=True)


def _lines_around(tree: ast.AST, inner: ast.AST) -> range:
    """The lines of the smallest statement around a node, of a block those before its body."""
    around = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and inner in ast.walk(node)
    ]
    smallest = around[-1]  # ast.walk goes by depth
    body = getattr(smallest, "body", None)
    end = max(smallest.lineno, body[0].lineno - 1) if body else smallest.end_lineno
    return range(smallest.lineno, (end or smallest.lineno) + 1)


def changed(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """What the node may be replaced by."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            yield ast.Constant(_other(value))
        case ast.If(test=test):
            yield ast.If(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.IfExp(test=test):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.Return(value=ast.expr() as value) if not _is_as_none(value):
            yield ast.Return(ast.Constant(None))
        case _:
            yield from _other_operation(node)


def _other(value: bool | int | float) -> bool | int | float:
    """A large number is doubled: few tests could tell a limit of 2000 from one of 2001."""
    if isinstance(value, bool):
        return not value
    return value + 1 if abs(value) < LARGE else 2 * value


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


def _is_as_none(value: ast.expr) -> bool:
    """In a condition, None is as good as False."""
    return isinstance(value, ast.Constant) and (value.value is None or value.value is False)


def replace(tree: ast.AST, old: ast.AST, new: ast.expr | ast.stmt) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(each is old for each in value):
                setattr(parent, name, [new if each is old else each for each in value])
    ast.fix_missing_locations(tree)


class MutatedLoader(importlib.abc.Loader):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._mutant.file)
        exec(self._mutant.code, module.__dict__)


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
        assert found is not None
        return importlib.util.spec_from_loader(fullname, MutatedLoader(self._mutant))


class Functions:
    """The imported functions by their code, to give them that of a mutant."""

    def __init__(self) -> None:
        self._by_code: dict[CodeType, list[FunctionType]] = {}
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(str(ROOT)):
                self._by_code.setdefault(one.__code__, []).append(one)

    def change(self, mutant: Mutant) -> bool:
        """Whether the change lies in functions alone; what runs at import has run."""
        original = _compiled(ast.parse(mutant.file.read_text()), mutant.file)
        return self._change(original, mutant.code, is_replaced=False)

    def _change(self, old: CodeType, new: CodeType, is_replaced: bool) -> bool:
        if old == new:
            return True
        functions = self._by_code.get(old, [])
        for function in functions:
            function.__code__ = new
        is_replaced = is_replaced or bool(functions)
        inner, inner_new = _inner_codes(old), _inner_codes(new)
        if len(inner) != len(inner_new) or (not is_replaced and _own(old) != _own(new)):
            return is_replaced
        pairs = zip(inner, inner_new, strict=True)
        return all([self._change(one, other, is_replaced) for one, other in pairs])


def _inner_codes(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _own(code: CodeType) -> tuple[bytes, str]:
    return code.co_code, repr([one for one in code.co_consts if not isinstance(one, CodeType)])


class Reach(NamedTuple):
    """What a test reaches of the package, by file, and how long it takes."""

    seconds: float
    lines: dict[str, set[int]]


UNKNOWN = Reach(0.0, {})


class Tracing:
    """Notes the lines of some files that run; of code that runs often, it notes all lines."""

    def __init__(self, files: Collection[Path]) -> None:
        self.lines: dict[str, set[int]] = {}
        self._events: dict[CodeType, int] = {}
        self._files = set(map(str, files))

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code.co_filename not in self._files or self._events.get(code, 0) > OFTEN:
            return None
        seen = self.lines.setdefault(code.co_filename, set())

        def line(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
            seen.add(frame.f_lineno)
            self._events[code] = self._events.get(code, 0) + 1
            if self._events[code] > OFTEN:
                seen.update(each for _, _, each in code.co_lines() if each is not None)
                frame.f_trace_lines = False
            return line

        return line(frame, event, arg)

    def start(self) -> None:
        self.lines, self._events = {}, {}
        threading.settrace(self)
        sys.settrace(self)

    def stop(self) -> None:
        sys.settrace(None)


class Found(NamedTuple):
    """What the collected tests say of the mutants, by their numbers."""

    survivors: list[int]
    at_import: list[int]
    imported: list[str]  # the modules that the tests need
    reach: dict[str, Reach]  # by the id of the test


class Laws:
    """A plugin: laws are tried with few examples first, as most mutants fail soon. A law that
    fails has failed: its smallest example interests nobody.
    """

    def __init__(self) -> None:
        self.full: dict[str, Any] = {}  # the settings of each law, by the id of the test

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        import hypothesis  # pytest wants to see its import

        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        for item in session.items:
            test = getattr(item, "obj", None)
            if isinstance(given := getattr(test, SETTINGS, None), hypothesis.settings):
                self.full[item.nodeid] = hypothesis.settings(given, phases=phases, database=None)
                few = min(given.max_examples, FEW)
                setattr(
                    test, SETTINGS, hypothesis.settings(self.full[item.nodeid], max_examples=few)
                )

    def with_all_examples(self, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        laws = [item for item in items if item.nodeid in self.full]
        for law in laws:
            setattr(getattr(law, "obj"), SETTINGS, self.full[law.nodeid])  # noqa: B009
        return laws


class Collected:
    """A plugin that takes over after the collection: each mutant is a fork from there."""

    def __init__(self, files: Collection[Path], mutants: Sequence[Mutant], laws: Laws) -> None:
        self.found: Found | None = None
        self._files, self._mutants, self._laws = files, mutants, laws

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        reach = in_fork(lambda: self._explore(session), seconds=EXPLORE_S)
        if reach is not None:
            self.found = self._try_all(session, reach)
        session.items = []
        return (yield)

    def _explore(self, session: pytest.Session) -> list[Reach] | None:
        return explored(session, Tracing(self._files))

    def _try_all(self, session: pytest.Session, reach: list[Reach]) -> Found:
        by_id = {item.nodeid: one for item, one in zip(session.items, reach, strict=True)}
        functions, found = Functions(), Found([], [], sorted(sys.modules), by_id)
        for at, mutant in enumerate(self._mutants):
            reaching = _reaching(reach, mutant)
            items = [session.items[at] for at in reaching]
            seconds = 5 + 2 * round(sum(reach[at].seconds for at in reaching))
            outcome = in_fork(lambda: _outcome(session, items, functions, mutant), seconds)  # noqa: B023
            if outcome is Outcome.SURVIVED:
                seconds = 10 * seconds
                outcome = in_fork(lambda: self._by_laws(session, items, functions, mutant), seconds)  # noqa: B023
            if outcome is Outcome.SURVIVED:
                report(mutant)
                found.survivors.append(at)
            elif outcome is Outcome.AT_IMPORT:
                found.at_import.append(at)
        return found

    def _by_laws(
        self,
        session: pytest.Session,
        items: Sequence[pytest.Item],
        functions: Functions,
        mutant: Mutant,
    ) -> "Outcome":
        laws = self._laws.with_all_examples(items)
        return _outcome(session, laws, functions, mutant) if laws else Outcome.SURVIVED


class Outcome(enum.Enum):
    KILLED = enum.auto()
    SURVIVED = enum.auto()
    AT_IMPORT = enum.auto()


def explored(session: pytest.Session, tracing: Tracing) -> list[Reach] | None:
    """What each test reaches, if all pass."""
    reach: list[Reach] = []
    for item in session.items:
        began = time.process_time()
        tracing.start()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        tracing.stop()
        reach.append(Reach(time.process_time() - began, tracing.lines))
        if session.testsfailed:
            report(f"{item.nodeid} fails without a mutant")
            return None
    return reach


def _reaching(reach: Sequence[Reach], mutant: Mutant) -> list[int]:
    """The tests that reach the mutant, the fastest first."""
    name = str(mutant.file)
    reaching = [
        at
        for at, one in enumerate(reach)
        if not one.lines.get(name, set()).isdisjoint(mutant.lines)
    ]
    return sorted(reaching, key=lambda at: reach[at].seconds)


def _outcome(
    session: pytest.Session, items: Sequence[pytest.Item], functions: Functions, mutant: Mutant
) -> Outcome:
    _be_quiet()
    if not items or not functions.change(mutant):
        return Outcome.AT_IMPORT
    for item in items:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        if session.testsfailed:
            return Outcome.KILLED
    return Outcome.SURVIVED


def in_fork(run: Callable[[], Result], seconds: int = CPU_S) -> Result | None:
    """What the work returns, which may neither fail nor loop nor wait forever."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            _work(run, seconds, file)
        deadline = time.monotonic() + max(TIMEOUT_S, seconds)
        while not os.waitpid(child, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        file.seek(0)
        written = file.read()
    return pickle.loads(written) if written else None


def _work(run: Callable[[], object], seconds: int, file: IO[bytes]) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        result = pickle.dumps(run())
        file.write(result)
        file.flush()
    except BaseException:
        report(traceback.format_exc())
    finally:
        os._exit(0)


def _be_quiet() -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


def report(line: object) -> None:
    os.write(OUTPUT, f"{line}\n".encode())


def _words(folder: str) -> list[str]:
    words = ["-s", "-q", f"--basetemp={folder}", "-p", "no:cacheprovider", "-p", "no:xdist"]
    words += [f"--deselect={test}" for test in OF_SOURCES]
    return [*words, "-m", "not slow and not drill"]


def found_by_collected(package: str, mutants: Sequence[Mutant], folder: str) -> Found | None:
    _be_quiet()
    laws = Laws()
    collected = Collected(files_of(package), mutants, laws)
    pytest.main([*_words(folder), *PACKAGES[package].tests], plugins=[laws, collected])
    return collected.found


def survivors_of_import(
    package: str, mutants: Sequence[Mutant], found: Found, folder: str
) -> list[int]:
    """Of mutants of code that runs at import. What cannot depend on it is imported once."""
    own = mutants[0].file.relative_to(ROOT).parts[1]
    theirs = [name for name in found.imported if _is_imported_before(name, own)]
    sys.path[:0] = [str(ROOT / name.partition("_")[2]) for name in LAYERS]
    _be_quiet()
    for name in theirs:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    left = list[int]()
    for at in found.at_import:
        if in_fork(lambda: _survives_import(package, mutants[at], found, folder)):  # noqa: B023
            report(mutants[at])
            left.append(at)
    return left


def _is_imported_before(name: str, own: str) -> bool:
    """Whether the module is of another project, or of a layer below the mutated package."""
    first = name.partition(".")[0]
    return LAYERS.index(first) < LAYERS.index(own) if first in LAYERS else first in OTHERS


def _survives_import(package: str, mutant: Mutant, found: Found, folder: str) -> bool:
    sys.meta_path.insert(0, MutatedFinder(mutant))
    words = ["-x", "-W", "ignore::pytest.PytestAssertRewriteWarning", *_words(folder)]
    plugins = [Laws(), Ordered(mutant, found)]
    return int(pytest.main([*words, *PACKAGES[package].tests], plugins=plugins)) == 0


class Ordered:
    """A plugin that runs the reference of the settings first, which holds most constants, then the
    tests that reach the file of the mutant, the fastest first."""

    def __init__(self, mutant: Mutant, found: Found) -> None:
        self._file, self._reach = str(mutant.file), found.reach

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=self._rank)

    def _rank(self, item: pytest.Item) -> tuple[bool, bool, float]:
        reach = self._reach.get(item.nodeid, UNKNOWN)
        return item.nodeid != REFERENCE, self._file not in reach.lines, reach.seconds


def files_of(package: str) -> list[Path]:
    files = sorted(ROOT.glob(PACKAGES[package].files))
    return [file for file in files if file.name != "__init__.py"]


def survivors(package: str, mutants: Sequence[Mutant]) -> int | None:
    """How many; they are printed as they are found."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = f"{scratch}/tests"  # pytest empties it
        found = in_fork(lambda: found_by_collected(package, mutants, folder), EXPLORE_S)
        if found is None:
            return None
        if not found.at_import:
            return len(found.survivors)
        left = in_fork(lambda: survivors_of_import(package, mutants, found, folder), EXPLORE_S)
    return None if left is None else len(found.survivors) + len(left)


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
        chosen = _chosen(package, args)
        left = survivors(package, chosen)
        if left is None:
            print(f"{package}: its tests fail without a mutant. No mutant was run.")
            return 2
        print(f"{package}: {len(chosen) - left} of {len(chosen)} mutants were noticed", flush=True)
        survived, total = survived + left, total + len(chosen)
    print(f"{total - survived} of {total}: {100 * (total - survived) / max(total, 1):.1f} %")
    return 1 if survived else 0


def _chosen(package: str, args: argparse.Namespace) -> list[Mutant]:
    wanted = [file for file in files_of(package) if file.name.endswith(args.only)]
    places = [place for file in wanted for place in places_in(file)]
    if args.sample is not None and args.sample < len(places):
        places = random.Random(args.seed).sample(places, args.sample)
    return list(map(mutant_at, places))


if __name__ == "__main__":
    sys.exit(main())
