"""The answers of extenders in the decision log."""

from collections import Counter
from typing import NamedTuple

from joulie_bus.events import codec
from joulie_projections.history.history import History
from joulie_projections.store.database import Place


class Answer(NamedTuple):
    """The replica that gave it, the verb, and the pod."""

    replica: str
    verb: str
    uid: str


def logged(place: Place) -> Counter[Answer]:
    """The number of log entries for each answer."""
    found: Counter[Answer] = Counter()
    with History.of(place) as history:
        for entry in history.entries():
            if entry.kind in ("decision.filter", "decision.prioritize"):
                replica = codec.origin_of(entry.event_id, "here").producer
                found[Answer(replica, entry.kind.removeprefix("decision."), entry.pod_uid)] += 1
    return found
