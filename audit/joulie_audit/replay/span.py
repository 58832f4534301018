"""One span of the log, once more: folded, compared, and every answer in it given again."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from joulie_audit.archive.fact_source import Facts
from joulie_audit.replay.fold import Past, StateFlaw
from joulie_audit.replay.fold_start import start_before
from joulie_audit.replay.recompute import (
    MISSING,
    STATE,
    Answer,
    Mismatch,
    Planned,
    check,
    check_plan,
)
from joulie_audit.replay.recorded import Every, Queue, answers_of
from joulie_operator.planning.plugins import load_policy
from joulie_operator.planning.reconcile import LoadedPolicy
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import NEWEST, History

KEPT = 20  # mismatches told in full; all are counted
Tell = Callable[[int], None]  # the position that is done


class Span(NamedTuple):
    """Positions to compare, and what of the log looked at them. Another process may be told it."""

    first: int
    last: int
    plans: list[Planned]  # in the order of the positions that they looked at
    every: Every


class Spanned(NamedTuple):
    events: int
    decisions: int
    plans: int
    mismatches: int
    told: list[Mismatch]


async def replay_span(
    history: History, facts: Facts, span: Span, tell: Tell | None = None
) -> Spanned:
    """Begins at the nearest snapshot; what lies between that and `first` is not compared."""
    past = start_before(history, span.first - 1)
    began = past.position
    plans = Queue((each.made.view, each) for each in span.plans)
    logged = Queue(answers_of(history, span.first, span.last, span.every))
    found = _Found(installed(planned.made.policy for planned in span.plans))
    found.answers(logged.up_to(began), past)
    found.plans_upon(plans.up_to(began), past)
    async for manifest, flaws in _folded(history, facts, span, past):
        found.state(flaws)
        found.answers(logged.up_to(manifest.p_to), past)
        found.plans_upon(plans.up_to(manifest.p_to), past)
        if tell is not None:
            tell(manifest.p_to)
    found.state(past.settle())
    for view, answer in logged.up_to(NEWEST):
        what = f"its view {view} is beyond the last position {past.position}"
        found.answer(Mismatch(answer.entry, MISSING, what))
    if span.last >= past.position:
        found.rows(history, past)
    events = past.position - began
    return Spanned(events, found.decisions, found.plans, found.mismatches, found.told)


async def _folded(
    history: History, facts: Facts, span: Span, past: Past
) -> AsyncIterator[tuple[Manifest, list[StateFlaw]]]:
    for manifest in history.manifests(past.position + 1, span.last):
        records = await facts.of(manifest)
        if manifest.p_to < span.first:
            past.skip(records)
        else:
            yield manifest, past.advance(records, manifest)


def installed(names: Iterable[str]) -> dict[str, LoadedPolicy]:
    """Policies by name, those that there are: the others' plans cannot be made again."""
    found: dict[str, LoadedPolicy] = {}
    for name in set(names):
        with contextlib.suppress(ValueError):
            found[name] = load_policy(name)
    return found


class _Found:
    """What was looked at, and what was not as recorded."""

    def __init__(self, policies: Mapping[str, LoadedPolicy]) -> None:
        self._policies = policies
        self.decisions = self.plans = self.mismatches = 0
        self.told: list[Mismatch] = []

    def state(self, flaws: Sequence[StateFlaw]) -> None:
        for flaw in flaws:
            self._miss(Mismatch(flaw.position, STATE, flaw.what))

    def answers(self, answers: Iterable[tuple[int, Answer]], past: Past) -> None:
        for _, answer in answers:
            self.answer(check(answer, past.twin_columns()))

    def answer(self, mismatch: Mismatch | None) -> None:
        self.decisions += 1
        self._miss(mismatch)

    def plans_upon(self, plans: Iterable[tuple[int, Planned]], past: Past) -> None:
        for _, planned in plans:
            self.plans += 1
            self._miss(check_plan(planned, past.cluster_state, self._policies))

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
