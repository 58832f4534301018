"""Formats an entry of the decision log as one line or as plain values."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from joulie_audit.questions.explain import node_names, read, similar_names
from joulie_bus.errors import NotInTheLog
from joulie_bus.events import AnyEvent
from joulie_extender.decide.explained import candidates_in, explained
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
    return f"{entry.pos:>9}  {kind:<17} {entry.pod:<32} {explained(event).line}"


def about_node(history: History, node: str) -> Callable[[StoredEntry], bool]:
    """A predicate: whether an entry has the node as a candidate or as the chosen node."""
    ordinals = {name: ordinal for ordinal, name in node_names(history).items()}
    if node not in ordinals:
        raise NotInTheLog(f"No node {node!r} is known. Known are {similar_names(node, ordinals)}.")

    def is_about(entry: StoredEntry) -> bool:
        event = read(entry)
        candidates = candidates_in(event)
        if candidates is not None:
            return bool((np.frombuffer(candidates.ordinals, "<i4") == ordinals[node]).any())
        return explained(event).node == node

    return is_about
