"""Replays one span of the log: folds it, compares it, recomputes every decision in it."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.fact_source import FactSource
from joulie_audit.recompute.answers import (
    MISSING,
    STATE,
    Mismatch,
    RecordedAnswer,
    RecordedPlan,
    RecordedResize,
    check_answer,
    check_plan,
    check_resize,
)
from joulie_audit.recompute.fold import FoldedState, Hole, StateFlaw
from joulie_audit.replay.fold_start import start_before
from joulie_audit.replay.recorded import PositionQueue, Sampling, answers_of
from joulie_audit.replay.set_backs import SetBacks
from joulie_audit.replay.signed_decisions import SignedDecisions
from joulie_bus.errors import NeverArchived
from joulie_operator.planning.reconcile import LoadedPolicy
from joulie_operator.plugins import load_policy
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import NEWEST, History

MAX_REPORTED = 20  # mismatches that a report holds; all are counted
Progress = Callable[[int], None]  # called with the last folded position


class Span(NamedTuple):
    """Positions to compare, the plans made from them, and orders to resize. Picklable."""

    first: int
    last: int
    plans: list[RecordedPlan]  # in the order of their view positions
    sampling: Sampling
    resizes: Sequence[RecordedResize] = ()


class SpanReport(NamedTuple):
    events: int
    decisions: int
    plans: int
    mismatches: int
    reported: list[Mismatch]
    set_back: int = 0
    lost: Sequence[Mismatch] = ()  # those made on state that the database lost
    uncompared: Mapping[str, int] = {}  # positions by fold version
    other_folds: int = 0  # decisions and plans on state that was not compared, which differ
    on_other_folds: Sequence[Mismatch] = ()
    holes: Sequence[Hole] = ()
    in_holes: int = 0  # decisions and plans on state that is not known, which were not recomputed
    foreign: int = 0  # decisions that no replica signed, which differ
    foreign_ones: Sequence[Mismatch] = ()
    resizes: int = 0


async def replay_span(
    history: History, facts: FactSource, span: Span, progress: Progress | None = None
) -> SpanReport:
    """Starts at the nearest snapshot; positions between it and `first` are not compared."""
    folded = start_before(history, span.first - 1)
    began = folded.position
    plans = PositionQueue((each.made.view, each) for each in span.plans)
    answers = PositionQueue(answers_of(history, span.first, span.last, span.sampling))
    policies = installed(planned.made.policy for planned in span.plans)
    checks = _SpanChecks(policies, SetBacks.of(history), SignedDecisions(history))
    checks.resizes_of(span.resizes)
    checks.answers(answers.up_to(began), folded)
    checks.plans_at(plans.up_to(began), folded)
    async for manifest, flaws in _folded(history, facts, span, folded):
        checks.state(flaws)
        due = answers.up_to(manifest.p_to), plans.up_to(manifest.p_to)
        if folded.is_known:
            checks.answers(due[0], folded)
            checks.plans_at(due[1], folded)
        else:
            checks.in_holes += sum(1 for _ in chain(*due))
        if progress is not None:
            progress(manifest.p_to)
    checks.state(folded.settle())
    for view, answer in answers.up_to(NEWEST):
        what = f"its view {view} is beyond the last position {folded.position}"
        checks.answer(answer, Mismatch(answer.entry, MISSING, what))
    if span.last >= folded.position:
        checks.rows(history, folded)
    missed = sum(hole.last - hole.first + 1 for hole in folded.holes)
    return checks.report(folded.position - began - missed, folded)


async def _folded(
    history: History, facts: FactSource, span: Span, folded: FoldedState
) -> AsyncIterator[tuple[Manifest, list[StateFlaw]]]:
    """Continues from a recorded state where another fold version may have left another one, and
    where facts are lost.
    """
    starts = frozenset(history.starts())
    for manifest in history.manifests(folded.position + 1, span.last):
        flaws = await _advance(facts, manifest, span.first, folded)
        is_certain = folded.is_known and folded.comparison.is_recorded
        if manifest.p_to in starts and not is_certain:
            _resume(folded, history)
        if flaws is not None:
            yield manifest, flaws


async def _advance(
    facts: FactSource, manifest: Manifest, first: int, folded: FoldedState
) -> list[StateFlaw] | None:
    """None if it was not compared."""
    if not folded.is_known:
        return folded.miss(manifest)
    found = facts.in_columns(manifest) if isinstance(facts, ArchivedFacts) else None
    try:
        batch = await facts.of(manifest) if found is None else found
    except NeverArchived:
        return folded.miss(manifest)
    if manifest.p_to < first:
        folded.pass_over(batch, manifest)
        return None
    return folded.advance(batch, manifest)


def _resume(folded: FoldedState, history: History) -> None:
    recorded = start_before(history, folded.position)
    if recorded.position == folded.position:  # otherwise the snapshot here is damaged
        folded.resume(recorded)


def installed(names: Iterable[str]) -> dict[str, LoadedPolicy]:
    """The installed policies by name. Plans of other policies cannot be recomputed."""
    found: dict[str, LoadedPolicy] = {}
    for name in set(names):
        with contextlib.suppress(ValueError):
            found[name] = load_policy(name)
    return found


class _SpanChecks:
    """Counts what was checked and collects the mismatches.

    What was made on lost state is compared too: facts mostly get their positions again. So is what
    was made on state of another fold version, which mostly is the same.
    """

    def __init__(
        self, policies: Mapping[str, LoadedPolicy], set_backs: SetBacks, signed: SignedDecisions
    ) -> None:
        self._policies = policies
        self._set_backs = set_backs
        self._signed = signed
        self.decisions = self.plans = self.resizes = self.mismatches = 0
        self.set_back = self.other_folds = self.in_holes = self.foreign = 0
        self.reported: list[Mismatch] = []
        self.lost: list[Mismatch] = []
        self.on_other_folds: list[Mismatch] = []
        self.foreign_ones: list[Mismatch] = []

    def report(self, events: int, folded: FoldedState) -> SpanReport:
        counted = self.decisions, self.plans, self.mismatches, self.reported
        apart = self.set_back, self.lost, folded.comparison.uncompared
        others = self.other_folds, self.on_other_folds
        foreign = self.foreign, self.foreign_ones
        holes = folded.holes, self.in_holes
        return SpanReport(events, *counted, *apart, *others, *holes, *foreign, self.resizes)

    def state(self, flaws: Sequence[StateFlaw]) -> None:
        for flaw in flaws:
            self._count(Mismatch(flaw.position, STATE, flaw.what))

    def answers(self, answers: Iterable[tuple[int, RecordedAnswer]], folded: FoldedState) -> None:
        is_recorded = folded.comparison.is_recorded
        for _, answer in answers:
            mismatch = check_answer(answer, folded.twin_columns())
            self.answer(answer, mismatch, is_recorded=is_recorded)

    def answer(
        self, answer: RecordedAnswer, mismatch: Mismatch | None, *, is_recorded: bool = True
    ) -> None:
        self.decisions += 1
        basis = answer.decision.basis
        is_lost = self._set_backs.took_back(basis.incarnation, basis.view, basis.now)
        if answer.header_mismatch:
            self._count(mismatch)
        elif mismatch is not None and self._signed.is_foreign(answer.entry):
            self.foreign += 1
            _keep(self.foreign_ones, mismatch)
        else:
            self._count_made(mismatch, is_lost=is_lost, is_recorded=is_recorded)

    def plans_at(self, plans: Iterable[tuple[int, RecordedPlan]], folded: FoldedState) -> None:
        for _, planned in plans:
            self.plans += 1
            mismatch, made = check_plan(planned, folded.cluster_state, self._policies), planned.made
            is_lost = self._set_backs.took_back_plan(made.view, made.now)
            is_recorded = folded.comparison.is_recorded
            self._count_made(mismatch, is_lost=is_lost, is_recorded=is_recorded)

    def resizes_of(self, recorded: Iterable[RecordedResize]) -> None:
        """They rest on no state."""
        for each in recorded:
            self.resizes += 1
            self._count(check_resize(each))

    def rows(self, history: History, folded: FoldedState) -> None:
        """Compares the database rows, from which readers start, with the folded state."""
        if not (folded.is_known and folded.comparison.is_recorded):
            return
        checkpoint, rows = history.checkpoint(), history.digests()
        if checkpoint is None or checkpoint.position != folded.position or rows == folded.digests:
            return
        tables = ", ".join(table for table in rows if rows[table] != folded.digests[table])
        self._count(
            Mismatch(folded.position, STATE, f"the rows of {tables} differ from the folded state")
        )

    def _count(self, mismatch: Mismatch | None) -> None:
        if mismatch is None:
            return
        self.mismatches += 1
        _keep(self.reported, mismatch)

    def _count_made(self, mismatch: Mismatch | None, *, is_lost: bool, is_recorded: bool) -> None:
        if mismatch is None:
            return
        if is_lost:
            self.set_back += 1
            _keep(self.lost, mismatch)
        elif not is_recorded:
            self.other_folds += 1
            _keep(self.on_other_folds, mismatch)
        else:
            self._count(mismatch)


def _keep(reported: list[Mismatch], mismatch: Mismatch) -> None:
    if len(reported) < MAX_REPORTED:
        reported.append(mismatch)
