"""When conditions begin and end, as CloudEvents 1.0.

A condition counts once it has lasted, and has ended once it was absent for a minute, so that one
that comes and goes is one occurrence. The id of an event names what and since when, and not which
console sends it: a receiver that drops the ids that it knows gets each event once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from joulie_console.views.conditions import KINDS, Condition, Kind, S

LASTS_S: dict[Kind, int] = {
    **dict.fromkeys(KINDS, 60),
    "caps.refused": 300,  # a writer sets the caps of a new order meanwhile
    "target.missed": 300,  # caps take effect meanwhile
}
ENDS_S = 60
CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
TYPES = "io.joulie."  # the beginning of each type
Change = Literal["begun", "ended"]


class Event(NamedTuple):
    """A CloudEvent. Its `tree` is the structured form, in JSON."""

    id: str
    type: str
    tree: dict[str, Any]


@dataclass
class _Occurrence:
    condition: Condition  # as it was last seen
    since: str  # as it was first seen
    first: int
    last: int
    is_reported: bool = False


class Occurrences:
    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._known: dict[tuple[str, str], _Occurrence] = {}

    def update(self, found: Sequence[Condition], now: int) -> list[Event]:
        """`now` is the broker's clock: consoles have it in common."""
        for condition in found:
            key = condition.kind, condition.subject
            known = self._known.get(key)
            if known is None:
                since = condition.since or _minute(now)
                self._known[key] = _Occurrence(condition, since, now, now)
            else:
                known.condition, known.last = condition, now
        return [*self._begun(now), *self._ended(now)]

    def _begun(self, now: int) -> Iterator[Event]:
        for each in self._known.values():
            lasted_s = (each.last - each.first) / S
            if not each.is_reported and lasted_s >= LASTS_S[each.condition.kind]:
                each.is_reported = True
                yield self._event(each, "begun", each.first)

    def _ended(self, now: int) -> Iterator[Event]:
        over = [key for key, each in self._known.items() if now - each.last >= ENDS_S * S]
        for key in over:
            each = self._known.pop(key)
            if each.is_reported:
                yield self._event(each, "ended", each.last)

    def _event(self, each: _Occurrence, change: Change, at: int) -> Event:
        condition = each.condition
        event_id = f"{condition.kind}/{condition.subject}/{each.since}/{change}"
        kind = type_of(condition.kind, change)
        tree = {
            "specversion": "1.0",
            "id": event_id,
            "source": f"/joulie/{quote(self._cluster, safe='')}",
            "type": kind,
            "subject": condition.subject,
            "time": datetime.fromtimestamp(at / S, UTC).isoformat(timespec="milliseconds"),
            "datacontenttype": "application/json",
            "data": {"level": condition.level, "text": condition.text, "change": change},
        }
        return Event(event_id, kind, tree)


def type_of(kind: Kind, change: Change) -> str:
    return f"{TYPES}{kind}.{change}"


def _minute(now: int) -> str:
    """The beginning of a condition that each console sees by itself."""
    return str(now // S // 60 * 60)
