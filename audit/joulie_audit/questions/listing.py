"""Formats an entry of the decision log as one line or as plain values."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from joulie_audit.questions.explain import read, similar_names
from joulie_bus.errors import NotInTheLog
from joulie_bus.events import AnyEvent, FilterDecided, PreemptDecided, PrioritizeDecided
from joulie_extender.decide.explained import explained
from joulie_projections.history.history import History, StoredEntry
from joulie_projections.twin.row_names import names_node

NS = 10**9


def row_of(entry: StoredEntry, event: AnyEvent | None) -> dict[str, Any]:
    """The entry with its decoded data, for JSON."""
    return {
        "entry": entry.pos,
        "id": entry.event_id,
        "kind": entry.kind,
        "pod": entry.pod,
        "pod_uid": entry.pod_uid,
        "view": entry.view_position,
        "decided_at": entry.decided_at,
        "hash": entry.hash.hex(),
        "data": None if event is None else msgspec.to_builtins(event),
    }


def line_of(entry: StoredEntry, event: AnyEvent | None) -> str:
    kind = entry.kind.removeprefix("decision.")
    at = f"{datetime.fromtimestamp(entry.decided_at / NS, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"{entry.pos:>9}  {at}  {kind:<17} {entry.pod:<32} {explained(event).line}"


def about_node(history: History, node: str) -> Callable[[StoredEntry], bool]:
    """A predicate: whether an entry has the node as a candidate or as the chosen node."""
    names = history.row_names()
    if node not in names.nodes():
        known = similar_names(node, names.nodes())
        raise NotInTheLog(f"No node {node!r} is known. Known are {known}.")
    spans = names.spans_of(node)

    def is_about(entry: StoredEntry) -> bool:
        event = read(entry)
        if isinstance(event, FilterDecided | PrioritizeDecided | PreemptDecided):
            return names_node(event.candidates, event.basis.view, node, spans)
        return explained(event).node == node

    return is_about
