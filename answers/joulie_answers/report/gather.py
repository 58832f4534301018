"""Reads what a report is computed from: the ledger, the pods of the log, and the answers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from joulie_audit.archive.fact_source import FactSource
from joulie_audit.ledger.pods_in_log import Lives, lives_of
from joulie_audit.replay.recorded import declared_in
from joulie_bus.errors import NotInTheLog, Undecodable
from joulie_bus.events import PrioritizeDecided, codec
from joulie_extender.catalogue.declaration import weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_projections.energy.intervals import Interval
from joulie_projections.energy.report import Reading
from joulie_projections.energy.saved import LedgerState
from joulie_projections.history.history import EntryQuery, History
from joulie_projections.store.energy_table import EnergyTable

KINDS = ("node", "group")
NOTHING_FOLDED = (
    "The ledger holds no energy of this time. It is folded by `joulie ledger`, which `joulie up` "
    "and `joulie demo` run; `joulie ledger --once` folds it now."
)


class Period(NamedTuple):
    """As asked for; the intervals of the ledger widen it."""

    from_ms: int
    to_ms: int


class Answer(NamedTuple):
    """The best node of the newest answer for a pod."""

    node: str
    position: int  # of the view that it was computed from


class Gathered(NamedTuple):
    period: Period
    entries: int  # of the decision log that were read
    ledger: Reading
    state: LedgerState
    lives: Lives
    answers: Mapping[str, Answer]  # by the uid of the pod
    weights: Weights  # of the newest declaration
    asked_again: frozenset[str] = frozenset()  # uids of pods that were not placed at once
    # Of a period that begins before a trim: the nodes from then on, in minutes where they are kept.
    held: Sequence[Interval] = ()


async def gathered(
    table: EnergyTable,
    history: History,
    facts: FactSource,
    period: Period,
    entries: int,
    *,
    late: bool = True,
) -> Gathered:
    """Everything up to the position of the ledger and this entry of the decision log. `late`:
    with the prices that came later than the energy."""
    found = table.reading(period.from_ms, period.to_ms, KINDS, late=late)
    if found is None or not found[0]:
        raise NotInTheLog(NOTHING_FOLDED)
    intervals, state = found
    ledger = Reading(intervals, state.position, state.ledger.newest_ms)
    lives = await lives_of(history, facts, state.position)
    answers = answers_in(history, entries)
    weights, again = _weights(history, entries), frozenset(history.asked_again(entries))
    held = _held(table, intervals, lives.first_ms) if history.cut() else ()
    return Gathered(period, entries, ledger, state, lives, answers, weights, again, held)


def _held(table: EnergyTable, period: Sequence[Interval], first_ms: int) -> Sequence[Interval]:
    end_ms = max(each.end_ms for each in period)
    if not min(each.start_ms for each in period) < first_ms < end_ms:
        return ()
    found = table.reading(first_ms, end_ms, ("node",))
    return found[0] if found else ()


def answers_in(history: History, entries: int) -> dict[str, Answer]:
    query = EntryQuery(kinds=(PrioritizeDecided.TYPE,))
    found: dict[str, Answer] = {}
    for entry in history.find(query):
        if entry.pos > entries or entry.pod_uid in found:
            continue
        try:
            event = codec.decoded(entry.message, "decision")
        except (Undecodable, msgspec.DecodeError):
            continue  # `joulie verify` reports it
        if isinstance(event, PrioritizeDecided) and event.top:
            found[entry.pod_uid] = Answer(event.top[0].node, event.basis.view)
    return found


def _weights(history: History, entries: int) -> Weights:
    """Those of the newest settings which a replica declared up to this entry."""
    found = declared_in(history, entries)
    declared = [weights for each in found if (weights := weights_of(each))]
    return declared[-1] if declared else Weights()
