"""Formats an entry of the decision log as one line or as plain values."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from joulie_audit.questions.explain import node_names, read, similar_names
from joulie_bus.errors import NotInTheLog
from joulie_bus.events import (
    AnyEvent,
    BindDecided,
    DecisionsDropped,
    FallbackAnswered,
    FilterDecided,
    OutcomeSeen,
    PreemptDecided,
    PrioritizeDecided,
    SettingsDeclared,
)
from joulie_projections.history.history import History, StoredEntry


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
    return f"{entry.pos:>9}  {kind:<17} {entry.pod:<32} {answer_of(event)}"


def answer_of(event: AnyEvent | None) -> str:
    match event:
        case FilterDecided() | PreemptDecided():
            asked = len(event.verdicts)
            refused = sum(verdict > 0 for verdict in event.verdicts)
            reason = f": {event.reason}" if isinstance(event, FilterDecided) and refused else ""
            return f"{asked - refused} of {asked} pass{reason}"
        case PrioritizeDecided():
            best = event.top[0] if event.top else None
            return f"best {best.node} with {best.score:.1f} of 100" if best else "no candidates"
        case FallbackAnswered():
            answer = "all of" if event.answer == "open" else "none of"
            return f"fallback ({event.why}): {answer} {event.candidates} pass"
        case DecisionsDropped():
            return f"{event.count} decisions dropped: {event.why}"
        case BindDecided():
            return f"{event.outcome} on {event.node}{f': {event.error}' if event.error else ''}"
        case OutcomeSeen():
            rank = f", ranked {event.rank}" if event.rank else ""
            return f"bound to {event.node}{rank}"
        case SettingsDeclared():
            return f"settings {event.settings} of {event.code}"
        case _:
            return "unreadable"


def about_node(history: History, node: str) -> Callable[[StoredEntry], bool]:
    """A predicate: whether an entry has the node as a candidate or as the chosen node."""
    ordinals = {name: ordinal for ordinal, name in node_names(history).items()}
    if node not in ordinals:
        raise NotInTheLog(f"No node {node!r} is known. Known are {similar_names(node, ordinals)}.")

    def is_about(entry: StoredEntry) -> bool:
        event = read(entry)
        if isinstance(event, FilterDecided | PrioritizeDecided | PreemptDecided):
            return bool((np.frombuffer(event.candidates.ordinals, "<i4") == ordinals[node]).any())
        return isinstance(event, BindDecided | OutcomeSeen) and event.node == node

    return is_about
