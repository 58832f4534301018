"""Replays one span of the log: folds it, compares it, recomputes every decision in it."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from joulie_audit.archive.fact_source import FactSource
from joulie_audit.recompute.answers import (
    MISSING,
    STATE,
    Mismatch,
    RecordedAnswer,
    RecordedPlan,
    check_answer,
    check_plan,
)
from joulie_audit.recompute.fold import FoldedState, StateFlaw
from joulie_audit.replay.fold_start import start_before
from joulie_audit.replay.recorded import PositionQueue, Sampling, answers_of
from joulie_audit.replay.set_backs import SetBacks
from joulie_operator.planning.reconcile import LoadedPolicy
from joulie_operator.plugins import load_policy
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import NEWEST, History

MAX_REPORTED = 20  # mismatches that a report holds; all are counted
Progress = Callable[[int], None]  # called with the last folded position


class Span(NamedTuple):
    """Positions to compare, and the plans made from them. Picklable."""

    first: int
    last: int
    plans: list[RecordedPlan]  # in the order of their view positions
    sampling: Sampling


class SpanReport(NamedTuple):
    events: int
    decisions: int
    plans: int
    mismatches: int
    reported: list[Mismatch]
    set_back: int = 0
    lost: Sequence[Mismatch] = ()  # those made on state that the database lost


async def replay_span(
    history: History, facts: FactSource, span: Span, progress: Progress | None = None
) -> SpanReport:
    """Starts at the nearest snapshot; positions between it and `first` are not compared."""
    folded = start_before(history, span.first - 1)
    began = folded.position
    plans = PositionQueue((each.made.view, each) for each in span.plans)
    answers = PositionQueue(answers_of(history, span.first, span.last, span.sampling))
    policies = installed(planned.made.policy for planned in span.plans)
    checks = _SpanChecks(policies, SetBacks.of(history))
    checks.answers(answers.up_to(began), folded)
    checks.plans_at(plans.up_to(began), folded)
    async for manifest, flaws in _folded(history, facts, span, folded):
        checks.state(flaws)
        checks.answers(answers.up_to(manifest.p_to), folded)
        checks.plans_at(plans.up_to(manifest.p_to), folded)
        if progress is not None:
            progress(manifest.p_to)
    checks.state(folded.settle())
    for view, answer in answers.up_to(NEWEST):
        what = f"its view {view} is beyond the last position {folded.position}"
        checks.answer(answer, Mismatch(answer.entry, MISSING, what))
    if span.last >= folded.position:
        checks.rows(history, folded)
    events = folded.position - began
    counted = checks.decisions, checks.plans, checks.mismatches, checks.reported
    return SpanReport(events, *counted, checks.set_back, checks.lost)


async def _folded(
    history: History, facts: FactSource, span: Span, folded: FoldedState
) -> AsyncIterator[tuple[Manifest, list[StateFlaw]]]:
    for manifest in history.manifests(folded.position + 1, span.last):
        records = await facts.of(manifest)
        if manifest.p_to < span.first:
            folded.skip(records)
        else:
            yield manifest, folded.advance(records, manifest)


def installed(names: Iterable[str]) -> dict[str, LoadedPolicy]:
    """The installed policies by name. Plans of other policies cannot be recomputed."""
    found: dict[str, LoadedPolicy] = {}
    for name in set(names):
        with contextlib.suppress(ValueError):
            found[name] = load_policy(name)
    return found


class _SpanChecks:
    """Counts what was checked and collects the mismatches.

    What was made on lost state is compared too: facts mostly get their positions again.
    """

    def __init__(self, policies: Mapping[str, LoadedPolicy], set_backs: SetBacks) -> None:
        self._policies = policies
        self._set_backs = set_backs
        self.decisions = self.plans = self.mismatches = self.set_back = 0
        self.reported: list[Mismatch] = []
        self.lost: list[Mismatch] = []

    def state(self, flaws: Sequence[StateFlaw]) -> None:
        for flaw in flaws:
            self._count(Mismatch(flaw.position, STATE, flaw.what))

    def answers(self, answers: Iterable[tuple[int, RecordedAnswer]], folded: FoldedState) -> None:
        for _, answer in answers:
            self.answer(answer, check_answer(answer, folded.twin_columns()))

    def answer(self, answer: RecordedAnswer, mismatch: Mismatch | None) -> None:
        self.decisions += 1
        basis = answer.decision.basis
        is_lost = self._set_backs.took_back(basis.incarnation, basis.view, basis.now)
        (self._count_lost if is_lost and not answer.header_mismatch else self._count)(mismatch)

    def plans_at(self, plans: Iterable[tuple[int, RecordedPlan]], folded: FoldedState) -> None:
        for _, planned in plans:
            self.plans += 1
            mismatch, made = check_plan(planned, folded.cluster_state, self._policies), planned.made
            is_lost = self._set_backs.took_back_plan(made.view, made.now)
            (self._count_lost if is_lost else self._count)(mismatch)

    def rows(self, history: History, folded: FoldedState) -> None:
        """Compares the database rows, from which readers start, with the folded state."""
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
        if len(self.reported) < MAX_REPORTED:
            self.reported.append(mismatch)

    def _count_lost(self, mismatch: Mismatch | None) -> None:
        if mismatch is None:
            return
        self.set_back += 1
        if len(self.lost) < MAX_REPORTED:
            self.lost.append(mismatch)
