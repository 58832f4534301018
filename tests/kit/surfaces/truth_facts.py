"""What is true of nodes, cards, pods and energy, computed from the messages of the broker alone.

It keeps what each fact said with its sequence, so that each question can be asked of any position:
by how far the streams were read there.
"""

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from joulie_bus.events import (
    AnyEvent,
    GpuGone,
    GpuSeen,
    NodeGone,
    NodeSeen,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    TelemetrySampled,
)
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

MS = 1_000_000
GAP_MS = 60_000  # docs/energy.md: a longer time without a common counter is unknown
UJ_PER_KWH = 3.6e12
Ends = Mapping[Stream, int]
T = TypeVar("T")


class Reading(NamedTuple):
    sequence: int
    stored: int  # in nanoseconds
    fact: TelemetrySampled

    @property
    def at_ms(self) -> int:
        return self.stored // MS - self.fact.late_ms


class Pod(NamedTuple):
    namespace: str
    name: str
    node: str  # empty: pending
    finished: bool


class Facts:
    def __init__(self) -> None:
        self._readings: dict[str, list[Reading]] = defaultdict(list)
        self._nodes: list[tuple[int, str, NodeSeen | None]] = []
        self._gone: dict[str, int] = {}  # when the object of a node was last gone
        self._cards: list[tuple[int, str, GpuSeen | None]] = []
        self._pods: list[tuple[int, str, Pod | None]] = []
        self._known: dict[str, Pod] = {}
        self._bindings: dict[str, tuple[int, int]] = {}  # the sequence and milliseconds of each

    def add(self, record: Record, fact: AnyEvent) -> None:
        match fact:
            case TelemetrySampled():
                reading = Reading(record.sequence, record.at, fact)
                self._readings[fact.node].append(reading)
            case NodeSeen() | NodeGone():
                seen = fact if isinstance(fact, NodeSeen) else None
                self._nodes.append((record.sequence, fact.node, seen))
                if seen is None:
                    self._gone[fact.node] = record.at
            case GpuSeen() | GpuGone():
                card = fact if isinstance(fact, GpuSeen) else None
                self._cards.append((record.sequence, fact.uuid, card))
            case PodPending() | PodBound() | PodFinished() | PodGone():
                self._add_pod(record, fact)
            case _:
                pass

    def _add_pod(self, record: Record, fact: PodPending | PodBound | PodFinished | PodGone) -> None:
        uid = fact.key
        known = self._known.get(uid)
        now: Pod | None = None
        if isinstance(fact, PodPending | PodBound):
            node = fact.node if isinstance(fact, PodBound) else ""
            now = Pod(fact.pod.namespace, fact.pod.name, node, finished=False)
        elif isinstance(fact, PodFinished) and known is not None:
            now = known._replace(finished=True)
        if now and now.node and not now.finished:
            self._bindings.setdefault(uid, (record.sequence, record.at // MS))
        if now is not None:
            self._known[uid] = now
        self._pods.append((record.sequence, uid, now))

    # --- of a position ------------------------------------------------------------------------

    def nodes_at(self, inputs: Ends) -> dict[str, NodeSeen]:
        return _newest(self._nodes, inputs)

    def known_at(self, inputs: Ends) -> set[str]:
        """Nodes with an object, and those whose agent reports before their object is seen."""
        last = inputs.get(Stream.TEL, 0)
        by_readings = {
            node
            for node, readings in self._readings.items()
            if (read := _upto(readings, last)) and read[-1].stored > self._gone.get(node, 0)
        }
        return {*self.nodes_at(inputs)} | by_readings

    def cards_at(self, inputs: Ends) -> dict[str, GpuSeen]:
        return _newest(self._cards, inputs)

    def pods_at(self, inputs: Ends) -> dict[str, Pod]:
        return _newest(self._pods, inputs)

    def bound_at(self, inputs: Ends, from_ms: int, to_ms: int) -> int:
        """The pods whose first binding is in the period."""
        last = inputs.get(Stream.OBS, 0)
        return sum(
            sequence <= last and from_ms <= at_ms < to_ms
            for sequence, at_ms in self._bindings.values()
        )

    def newest_reading_ms(self, inputs: Ends) -> int:
        last = inputs.get(Stream.TEL, 0)
        found = (_upto(readings, last) for readings in self._readings.values())
        return max((each[-1].stored // MS for each in found if each), default=0)

    def watts_at(
        self, inputs: Ends, there: Collection[str], is_fresh: Callable[[Reading], bool]
    ) -> tuple[float, int]:
        """The sum of the newest fresh readings of these nodes, and their number."""
        watts, count = 0.0, 0
        for node in {*there} & self._readings.keys():
            readings = _upto(self._readings[node], inputs.get(Stream.TEL, 0))
            if readings and is_fresh(readings[-1]):
                watts, count = watts + readings[-1].fact.power_mw / 1000, count + 1
        return watts, count

    def meter_kwh(self, inputs: Ends) -> float:
        """The energy of all readings up to a position, by the rule of docs/energy.md."""
        last = inputs.get(Stream.TEL, 0)
        energy_uj = sum(
            _between(before, after)
            for readings in self._readings.values()
            for before, after in itertools.pairwise(_upto(readings, last))
        )
        return energy_uj / UJ_PER_KWH


def _between(before: Reading, after: Reading) -> float:
    """In microjoules: by the counters, else by the mean of the later reading, else by the trapezoid
    rule; nothing over a gap."""
    span_ms = after.at_ms - before.at_ms
    first, second = before.fact, after.fact
    if second.counted_from and first.counted_from == second.counted_from:
        return second.energy_uj - first.energy_uj
    if not 0 < span_ms <= GAP_MS:
        return 0
    mean_mw = (first.power_mw + second.power_mw) / 2
    return (mean_mw if second.mean_mw is None else second.mean_mw) * span_ms


def _upto(readings: list[Reading], last: int) -> list[Reading]:
    return readings[: bisect.bisect_right(readings, (last, math.inf))]


def _newest(facts: list[tuple[int, str, T | None]], inputs: Ends) -> dict[str, T]:
    last, found = inputs.get(Stream.OBS, 0), dict[str, T]()
    for sequence, name, value in facts:
        if sequence <= last:
            if value is None:
                found.pop(name, None)
            else:
                found[name] = value
    return found
