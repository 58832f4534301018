"""Reads what a report is computed from: the ledger, the pods of the log, and the answers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from joulie_answers.report.form import Period
from joulie_audit.archive.fact_source import FactSource
from joulie_audit.ledger.pods_in_log import Lives, lives_of
from joulie_audit.replay.recorded import declared_in
from joulie_bus.errors import NotInTheLog, Undecodable
from joulie_bus.events import OutcomeSeen, PrioritizeDecided, codec
from joulie_extender.catalogue.declaration import weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_projections.energy.intervals import Interval
from joulie_projections.energy.report import Reading
from joulie_projections.energy.saved import LedgerState
from joulie_projections.history.history import EntryQuery, History
from joulie_projections.store.energy_table import EnergyTable

EventT = TypeVar("EventT", PrioritizeDecided, OutcomeSeen)
KINDS = ("node", "group")
NOTHING_FOLDED = (
    "The ledger holds no energy of this time. It is folded by `joulie ledger`, which `joulie up` "
    "and `joulie demo` run; `joulie ledger --once` folds it now."
)


class Answer(NamedTuple):
    """The best node of the newest answer for a pod."""

    node: str
    position: int  # of the view that it was computed from


class Ranked(NamedTuple):
    """Where a pod went, by its outcome in the log."""

    node: str
    rank: int  # of that node in the answer; all that tie as the best have 1
    behind: int  # points that the best had more


class Gathered(NamedTuple):
    period: Period
    entries: int  # of the decision log that were read
    ledger: Reading
    state: LedgerState
    lives: Lives
    answers: Mapping[str, Answer]  # by the uid of the pod
    ranks: Mapping[str, Ranked]  # likewise; not of a node that was no candidate
    weights: Weights | None  # of the newest declaration; None: of values that are not known here
    asked_again: frozenset[str] = frozenset()  # uids of pods that were not placed at once
    # Of a period that begins before a trim: the nodes from then on, in minutes where they are kept.
    held: Sequence[Interval] = ()


async def gathered(
    table: EnergyTable,
    history: History,
    facts: FactSource,
    period: Period,
    entries: int,
) -> Gathered:
    """Everything up to the position of the ledger and this entry of the decision log."""
    found = table.reading(period.from_ms, period.to_ms, KINDS)
    if found is None or not found[0]:
        raise NotInTheLog(NOTHING_FOLDED)
    intervals, state = found
    ledger = Reading(intervals, state.position, state.ledger.newest_ms)
    lives = await lives_of(history, facts, state.position)
    answers, ranks = answers_in(history, entries), _ranks(history, entries)
    weights, again = _weights(history, entries), frozenset(history.asked_again(entries))
    held = _held(table, intervals, lives.first_ms) if history.cut() else ()
    return Gathered(period, entries, ledger, state, lives, answers, ranks, weights, again, held)


def _held(table: EnergyTable, period: Sequence[Interval], first_ms: int) -> Sequence[Interval]:
    end_ms = max(each.end_ms for each in period)
    if not min(each.start_ms for each in period) < first_ms < end_ms:
        return ()
    found = table.reading(first_ms, end_ms, ("node",))
    return found[0] if found else ()


def answers_in(history: History, entries: int) -> dict[str, Answer]:
    found: dict[str, Answer] = {}
    for uid, event in _newest(history, entries, PrioritizeDecided):
        if uid not in found and event.top:
            found[uid] = Answer(event.top[0].node, event.basis.view)
    return found


def _ranks(history: History, entries: int) -> dict[str, Ranked]:
    return {
        uid: Ranked(event.node, event.rank, event.regret or 0)
        for uid, event in _newest(history, entries, OutcomeSeen)
        if event.rank is not None
    }


def _newest(history: History, entries: int, kind: type[EventT]) -> Iterator[tuple[str, EventT]]:
    """The entries of a kind, newest first, with the uid of their pod."""
    for entry in history.find(EntryQuery(kinds=(kind.TYPE,))):
        if entry.pos > entries:
            continue
        try:
            event = codec.decoded(entry.message, "decision")
        except (Undecodable, msgspec.DecodeError):
            continue  # `joulie verify` reports it
        if isinstance(event, kind):
            yield entry.pod_uid, event


def _weights(history: History, entries: int) -> Weights | None:
    """Those of the newest settings which a replica declared up to this entry."""
    declared = [*declared_in(history, entries)]
    return weights_of(declared[-1]) if declared else Weights()
