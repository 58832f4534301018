"""The typed tables of the decision log of a part, made from its entries."""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from joulie_audit.columns.tables import DECISIONS, MOST_LISTED, MOST_ROWS, TERMS, Columns
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    AnyEvent,
    BindDecided,
    FallbackAnswered,
    FilterDecided,
    OutcomeSeen,
    PreemptDecided,
    PrioritizeDecided,
    codec,
)
from joulie_bus.events.decisions import Basis, named_values
from joulie_bus.events.packing import Packed
from joulie_bus.events.pods import PodAsk
from joulie_projections.energy.ledger import NS_PER_MS
from joulie_projections.history.history import StoredEntry

Row = tuple[Any, ...]
_HERE = "it"
_DECISION = "decision."


def log_tables(entries: Sequence[StoredEntry]) -> dict[str, Columns]:
    decisions: list[Row] = []
    terms: list[Row] = []
    listed = 0
    for entry in entries:
        event = _event_in(entry)
        row = None if event is None else _decision(event)
        if row is None:
            continue
        at_ms, kind = entry.decided_at // NS_PER_MS, entry.kind.removeprefix(_DECISION)
        listed += event.candidates.count if isinstance(event, Packed) else 0
        lists = _NO_LISTS if event is None or listed > MOST_LISTED else _lists(event)
        decisions.append((entry.pos, at_ms, kind, entry.event_id, *row, *lists))
        if isinstance(event, PrioritizeDecided):
            of_this = list(_terms(entry.pos, event))
            if len(terms) + len(of_this) <= MOST_ROWS:
                terms += of_this
    return {DECISIONS.name: DECISIONS.filled(decisions), TERMS.name: TERMS.filled(terms)}


def _event_in(entry: StoredEntry) -> AnyEvent | None:
    if not entry.kind.startswith(_DECISION):  # it is unreadable
        return None
    try:
        return codec.decoded(entry.message, _HERE)
    except Undecodable:
        return None


def _decision(event: AnyEvent) -> Row | None:
    """None for an entry that is not about a pod."""
    match event:
        case FilterDecided():
            passed = event.verdicts.count(0)
            return _answer(event.pod, event.basis, event.candidates.count, passed, event.reason)
        case PreemptDecided():
            passed = event.verdicts.count(0)
            return _answer(event.pod, event.basis, event.candidates.count, passed, "")
        case PrioritizeDecided():
            return _scored(event)
        case FallbackAnswered():
            passed = event.candidates if event.answer == "open" else 0
            counts = (event.candidates, passed)
            return (
                *_named(event),
                *_basis(event.basis),
                *counts,
                event.answer,
                event.why,
                *_NO_NODE,
            )
        case BindDecided():
            said = (event.outcome, event.error or event.because or None)
            basis = _basis(event.basis)
            return (*_named(event), *basis, None, None, *said, event.node, None, None, None, None)
        case OutcomeSeen():
            where = (event.node, event.score, event.rank, event.regret, event.decision or None)
            return (*_named(event), *_NO_BASIS, None, None, None, None, *where)
        case _:
            return None


def _lists(event: AnyEvent) -> Row:
    match event:
        case PrioritizeDecided():
            return event.candidates.ordinals, event.scores, None
        case FilterDecided() | PreemptDecided():
            return event.candidates.ordinals, None, event.verdicts
        case _:
            return _NO_LISTS


_NO_LISTS: Row = (None,) * 3
_NO_BASIS: Row = (None,) * 3
_NO_NODE: Row = (None,) * 5


def _named(event: FallbackAnswered | BindDecided | OutcomeSeen) -> Row:
    return event.pod_uid, event.namespace, event.name, None


def _asking(pod: PodAsk) -> Row:
    return pod.uid, pod.namespace, pod.name, pod.workload


def _basis(basis: Basis) -> Row:
    return basis.view, basis.behind_ms, basis.settings


def _answer(pod: PodAsk, basis: Basis, candidates: int, passed: int, reason: str) -> Row:
    said = (candidates, passed, None, reason or None)
    return (*_asking(pod), *_basis(basis), *said, *_NO_NODE)


def _scored(event: PrioritizeDecided) -> Row:
    count = event.candidates.count
    best = max(struct.unpack(f"<{count}h", event.scores), default=None)
    node = event.top[0].node if event.top else None
    said = (count, None, None, None)
    where = (node, best, None, None, None)
    return (*_asking(event.pod), *_basis(event.basis), *said, *where)


def _terms(entry: int, event: PrioritizeDecided) -> Iterator[Row]:
    """Those that are not 0: most terms play no part in most scores."""
    for place, terms in enumerate(event.top, 1):
        for name, value in named_values(terms).items():
            if value:
                yield entry, place, terms.node, name, float(value)
