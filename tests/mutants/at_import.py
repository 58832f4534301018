"""Mutants of code that runs at import: each is imported in a fork that has imported the rest."""

import contextlib
import importlib
import sys
from collections.abc import Sequence

import pytest
from collected import Found, Laws
from forks import be_quiet, in_fork, report
from mutations import Mutant
from packages import PACKAGES, REFERENCE, ROOT, words_for
from reach import UNKNOWN
from swapping import MutatedFinder

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


def survivors_of_import(
    package: str, mutants: Sequence[Mutant], found: Found, folder: str
) -> list[int]:
    """Of mutants of code that runs at import. What cannot depend on it is imported once."""
    own = mutants[0].file.relative_to(ROOT).parts[1]
    theirs = [name for name in found.imported if _is_imported_before(name, own)]
    sys.path[:0] = [str(ROOT / name.partition("_")[2]) for name in LAYERS]
    be_quiet()
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
    words = ["-x", "-W", "ignore::pytest.PytestAssertRewriteWarning", *words_for(folder)]
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
