"""Tests that are collected once: each mutant is a fork of the process that collected them."""

import enum
import sys
import time
from collections.abc import Collection, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from forks import EXPLORE_S, be_quiet, in_fork, report
from mutations import Mutant
from reach import Reach, Tracing
from swapping import Functions

FEW = 10  # examples of a law


SETTINGS = "_hypothesis_internal_use_settings"


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
    be_quiet()
    if not items or not functions.change(mutant):
        return Outcome.AT_IMPORT
    for item in items:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        if session.testsfailed:
            return Outcome.KILLED
    return Outcome.SURVIVED
