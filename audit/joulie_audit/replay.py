"""Folds the recorded ranges again and recomputes every decision and every plan on the way.

Reads the facts, not the rows: what the rows claim is compared with what the facts give. One pass:
at each position that somebody looked at, what they decided is decided again on the spot, or by
another process that is handed the board.
"""

import contextlib
import time
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from joulie_audit.facts import Facts
from joulie_audit.fold import Past, StateFlaw
from joulie_audit.logged import Queue, answers_of, declared_in, plans_of
from joulie_audit.recompute import (
    MISSING,
    STATE,
    Answer,
    Mismatch,
    Planned,
    check,
    check_plan,
)
from joulie_extender.decide import CODE_VERSION as ANSWERS_BY
from joulie_operator.plugins import chosen
from joulie_operator.reconcile import Chosen
from joulie_projections.board import Board
from joulie_projections.history import NEWEST, History
from joulie_projections.manifest import CODE_VERSION as FOLDED_BY
from joulie_projections.manifest import Manifest

KEPT = 20  # mismatches told in full; all are counted
ENOUGH = 200  # decisions handed to another process at once: a board costs as much as some of them
Tell = Callable[[int, int], None]  # positions done, of how many


class Scope(NamedTuple):
    """What is looked at. Everything before `first` is folded and not compared."""

    first: int = 1
    last: int = NEWEST
    sample: int = 0  # so many decisions, evenly spread; 0: all
    jobs: int = 1  # processes that recompute


ALL = Scope()


class Replayed(NamedTuple):
    events: int
    decisions: int
    plans: int
    mismatches: int
    seconds: float
    told: list[Mismatch]


class Versions(NamedTuple):
    """Programs whose work is in the log, where they are not this one."""

    folds: list[str]
    answers: list[str]

    def __str__(self) -> str:
        told = []
        if self.folds:
            told.append(f"folds of version {', '.join(self.folds)} (here {FOLDED_BY})")
        if self.answers:
            told.append(f"answers of {', '.join(self.answers)} (here {ANSWERS_BY})")
        return (
            f"Other code than this made a part of the log: {' and '.join(told)}. "
            "What differs may be the code's doing; the version that decided decides it the same."
        )


def other_versions(history: History) -> Versions | None:
    answers = {declared.code for declared in declared_in(history)} - {ANSWERS_BY}
    folds = set(history.fold_versions()) - {FOLDED_BY}
    return Versions(sorted(folds), sorted(answers)) if folds or answers else None


async def replay(
    history: History, facts: Facts, scope: Scope = ALL, tell: Tell | None = None
) -> Replayed:
    started = time.perf_counter()
    planned_then = await plans_of(history, facts, scope.first, scope.last)
    plans = Queue(_plans(planned_then))
    logged = Queue(answers_of(history, scope.first, scope.last, scope.sample))
    checkpoint = history.checkpoint()
    end = min(scope.last, checkpoint.position if checkpoint else 0)
    past = Past(aside=history.set_aside())
    found = _Found(installed(planned.made.policy for planned in planned_then))
    with _recomputing(scope.jobs, found) as recompute:
        recompute([each for _, each in logged.up_to(0)], past.board)
        found.plans_upon(plans.up_to(0), past)
        async for manifest, flaws in _folded(history, facts, scope, past):
            found.state(flaws)
            answers = [each for _, each in logged.up_to(manifest.p_to)]
            recompute(answers, past.board)
            found.plans_upon(plans.up_to(manifest.p_to), past)
            if tell is not None:
                tell(manifest.p_to, end)
    found.state(past.settle())
    for view, answer in logged.up_to(NEWEST):
        what = f"its view {view} is beyond the last position {past.position}"
        found.answer(Mismatch(answer.entry, MISSING, what))
    if scope.last >= past.position:
        found.rows(history, past)
    seconds = time.perf_counter() - started
    return Replayed(
        past.position, found.decisions, found.plans, found.mismatches, seconds, found.told
    )


async def _folded(
    history: History, facts: Facts, scope: Scope, past: Past
) -> AsyncIterator[tuple[Manifest, list[StateFlaw]]]:
    """Everything up to the last; what lies before the first is not compared."""
    for manifest in history.manifests(1, scope.last):
        records = await facts.of(manifest)
        if manifest.p_to < scope.first:
            past.skip(records)
        else:
            yield manifest, past.advance(records, manifest)


def installed(names: Iterable[str]) -> dict[str, Chosen]:
    """Policies by name, those that there are: the others' plans cannot be made again."""
    found: dict[str, Chosen] = {}
    for name in set(names):
        with contextlib.suppress(ValueError):
            found[name] = chosen(name)
    return found


class _Found:
    """What was looked at, and what was not as recorded."""

    def __init__(self, policies: Mapping[str, Chosen]) -> None:
        self._policies = policies
        self.decisions = self.plans = self.mismatches = 0
        self.told: list[Mismatch] = []

    def state(self, flaws: Sequence[StateFlaw]) -> None:
        for flaw in flaws:
            self._miss(Mismatch(flaw.position, STATE, flaw.what))

    def answer(self, mismatch: Mismatch | None) -> None:
        self.decisions += 1
        self._miss(mismatch)

    def plans_upon(self, plans: Iterable[tuple[int, Planned]], past: Past) -> None:
        for _, planned in plans:
            self.plans += 1
            self._miss(check_plan(planned, past.world, self._policies))

    def rows(self, history: History, past: Past) -> None:
        """What readers boot from must be what the facts give."""
        checkpoint, rows = history.checkpoint(), history.digests()
        if checkpoint is None or checkpoint.position != past.position or rows == past.digests:
            return
        tables = ", ".join(table for table in rows if rows[table] != past.digests[table])
        self._miss(Mismatch(past.position, STATE, f"the rows of {tables} are not the folded ones"))

    def _miss(self, mismatch: Mismatch | None) -> None:
        if mismatch is None:
            return
        self.mismatches += 1
        if len(self.told) < KEPT:
            self.told.append(mismatch)


# --- here or in other processes ---------------------------------------------------------------

Recompute = Callable[[Sequence[Answer], Callable[[], Board]], None]


@contextlib.contextmanager
def _recomputing(jobs: int, found: _Found) -> Generator[Recompute, None, None]:
    """The results come in the order of the questions, whoever answers."""
    if jobs <= 1:
        yield lambda answers, board: _here(answers, board, found)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        hands = _Hands(pool, jobs, found)
        yield hands.recompute
        hands.finish()


def _here(answers: Sequence[Answer], board: Callable[[], Board], found: _Found) -> None:
    for answer in answers:
        found.answer(check(answer, board()))


Work = list[tuple[Board, Sequence[Answer]]]


class _Hands:
    """Collects boards with their questions until it pays to hand them over."""

    def __init__(self, pool: ProcessPoolExecutor, jobs: int, found: _Found) -> None:
        self._pool, self._found = pool, found
        self._waiting: deque[Future[list[Mismatch | None]]] = deque()
        self._most = 2 * jobs
        self._work: Work = []
        self._count = 0

    def recompute(self, answers: Sequence[Answer], board: Callable[[], Board]) -> None:
        if not answers:
            return
        self._work.append((board(), answers))
        self._count += len(answers)
        if self._count >= ENOUGH:
            self._hand_over()

    def finish(self) -> None:
        self._hand_over()
        while self._waiting:
            self._take()

    def _hand_over(self) -> None:
        self._waiting.append(self._pool.submit(_checked, self._work))
        self._work, self._count = [], 0
        while len(self._waiting) > self._most:
            self._take()

    def _take(self) -> None:
        for mismatch in self._waiting.popleft().result():
            self._found.answer(mismatch)


def _checked(work: Work) -> list[Mismatch | None]:
    return [check(answer, board) for board, answers in work for answer in answers]


def _plans(made: Sequence[Planned]) -> Iterator[tuple[int, Planned]]:
    return ((each.made.view, each) for each in made)
