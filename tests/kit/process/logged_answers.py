"""The answers of extenders in the decision log."""

from collections import Counter
from typing import NamedTuple

from joulie_audit.replay.recorded import events_of
from joulie_bus.events import FallbackAnswered, FilterDecided, PrioritizeDecided, codec
from joulie_projections.history.history import History, StoredEntry
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
            if verb := _verb_of(entry):
                replica = codec.origin_of(entry.event_id, "here").producer
                found[Answer(replica, verb, entry.pod_uid)] += 1
    return found


def _verb_of(entry: StoredEntry) -> str:
    """Empty if the entry is no answer. An extender that is late answers by a fallback."""
    if entry.kind in (FilterDecided.TYPE, PrioritizeDecided.TYPE):
        return entry.kind.removeprefix("decision.")
    fallbacks = (each for each in events_of([entry]) if isinstance(each, FallbackAnswered))
    return next((each.verb for each in fallbacks), "")
