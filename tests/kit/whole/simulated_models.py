"""The state at the end, compared with what the models around the product know by themselves."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from simulated_versions import power_folded

from bus_kit.memory_broker import MemoryBroker
from joulie_bus.events import codec
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.fold.manifest import Manifest
from joulie_projections.state.state import ClusterState

NS_PER_MS = 1_000_000
UNFOLDED = 4  # readings of a node at most, at the end of a run
SETTLED_S = 2.0  # what is older has been folded, at the end of a run
Fail = Callable[[str], None]
FoldedBy = Callable[[int], Collection[str]]  # the versions that may have folded a reading


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Reading(NamedTuple):
    power_mw: int
    began_s: float
    done: bool = False  # the agent knows that it is stored


class StoredReading(NamedTuple):
    at_ms: int
    power_mw: int
    sequence: int


class Meters:
    """What the agents read, and which of it they know to be stored."""

    def __init__(self) -> None:
        self._told: dict[str, list[Reading]] = defaultdict(list)
        self._stored: dict[str, list[StoredReading]] = defaultdict(list)

    def store(self, record: Record) -> None:
        """A message of telemetry, the first time that the broker stored it."""
        sample = codec.open_sample(record.data)
        if sample is not None:
            reading = StoredReading(record.at // NS_PER_MS, sample.data.power_mw, record.sequence)
            self._stored[sample.data.node].append(reading)

    def begin(self, node: str, power_mw: int) -> None:
        self._told[node].append(Reading(power_mw, now_s()))

    def end(self, node: str) -> None:
        *_, newest = self._told[node]
        self._told[node][-1] = newest._replace(done=True)

    def require_in(self, cluster_state: ClusterState, folded_by: FoldedBy, fail: Fail) -> None:
        """The newest reading of a node is one that its agent told last, as it was folded."""
        for node, told in self._told.items():
            known = cluster_state.nodes.get(node)
            shown = known.samples[-1].power_mw if known and known.samples else None
            sequences = {each.power_mw: each.sequence for each in self._stored[node]}
            possible = [
                power_folded(by, node, each.power_mw)
                for each in _from_the_last_settled(told)
                for by in folded_by(sequences.get(each.power_mw, 0))
            ]
            if shown not in possible:
                fail(f"at the end, {node} draws {shown} mW; its agent told {possible} last")

    def require_energy(
        self, counted_uj: Mapping[str, int], lost: Container[int], fail: Fail
    ) -> None:
        """The energy of a node is that of all its readings but the newest, which may not have been
        folded yet, and those that are lost; by the trapezoid rule, in whole microjoules."""
        for node, readings in self._stored.items():
            stored = [each for each in readings if each.sequence not in lost]
            sums = list(accumulate(map(_energy_uj, stored, stored[1:]), initial=0))
            newest = [energy for energy in sums[-UNFOLDED:] if energy]
            if newest and counted_uj.get(node, 0) not in newest:
                fail(
                    f"the ledger counts {counted_uj.get(node, 0)} uJ of {node}; its agent told "
                    f"{newest}"
                )


def _energy_uj(before: StoredReading, after: StoredReading) -> int:
    return (before.power_mw + after.power_mw) * (after.at_ms - before.at_ms) // 2


def _from_the_last_settled(told: list[Reading]) -> list[Reading]:
    """The last one that must have been folded, and those after it."""
    settled = [
        at for at, each in enumerate(told) if each.done and each.began_s < now_s() - SETTLED_S
    ]
    return told[settled[-1] :] if settled else told


class PodPlaces:
    """Where the API server has each pod, and since when."""

    def __init__(self) -> None:
        self._node: dict[str, str] = {}  # empty while it waits
        self._changed_s: dict[str, float] = {}

    def put(self, uid: str, node: str = "") -> None:
        self._node[uid], self._changed_s[uid] = node, now_s()

    def remove(self, uid: str) -> None:
        del self._node[uid]
        self._changed_s[uid] = now_s()

    def require_in(self, cluster_state: ClusterState, fail: Fail) -> None:
        held = {uid: pod.node for uid, pod in cluster_state.pods.items()}
        moving = {uid for uid, at in self._changed_s.items() if at >= now_s() - SETTLED_S}
        for uid in sorted((held.keys() | self._node.keys()) - moving):
            if held.get(uid) != self._node.get(uid):
                fail(
                    f"at the end, {uid} {_where(held, uid)}; at the API server it "
                    f"{_where(self._node, uid)}"
                )
        self._require_counts(cluster_state, moving, fail)

    def _require_counts(self, cluster_state: ClusterState, moving: set[str], fail: Fail) -> None:
        """Of nodes on which no pod began or ended meanwhile."""
        expected = Counter(node for node in self._node.values() if node)
        changing = {self._node.get(uid, "") for uid in moving} | {
            pod.node for uid, pod in cluster_state.pods.items() if uid in moving
        }
        for name, node in cluster_state.nodes.items():
            if name not in changing and node.pods != expected[name]:
                fail(
                    f"at the end, {name} counts {node.pods} pods; at the API server it has "
                    f"{expected[name]}"
                )


def _where(places: dict[str, str], uid: str) -> str:
    if uid not in places:
        return "does not exist"
    return f"is on {places[uid]}" if places[uid] else "waits"


class Repeats:
    """Which stored messages repeat an earlier one: those are folded once."""

    def __init__(self, broker: MemoryBroker, meters: Meters, fail: Fail) -> None:
        self._broker = broker
        self._meters = meters
        self._fail = fail
        self._first: dict[tuple[Stream, bytes], int] = {}
        self._seen = dict.fromkeys(MERGE_ORDER, 0)

    def sequenced(self, records: Sequence[Record], duplicates: int) -> None:
        """To be called with each batch of a projector, and how many of it were left out."""
        self._look()
        repeated = [each for each in records if self._first[each.stream, each.data] < each.sequence]
        if len(repeated) != duplicates:
            self._fail(
                f"{duplicates} messages of a batch were left out as repeated; by the streams "
                f"{len(repeated)} are"
            )

    def _look(self) -> None:
        for stream, seen in self._seen.items():
            for each in self._broker.stream(stream).after(seen):
                self._seen[stream] = each.sequence
                is_first = self._first.setdefault((stream, each.data), each.sequence)
                if stream is Stream.TEL and is_first == each.sequence:
                    self._meters.store(each)


def require_each_message_once(
    manifests: Iterable[Manifest], stored: Callable[[Stream], int], fail: Fail
) -> None:
    """Each message that was read lies in exactly one manifest, counted one by one."""
    counted: dict[Stream, Counter[int]] = defaultdict(Counter)
    for stream, number in _numbers(manifests):
        counted[stream][number] += 1
    for stream, numbers in counted.items():
        last = max(numbers)
        wrong = [(number, numbers[number]) for number in range(1, last + 1) if numbers[number] != 1]
        for number, times in wrong[:1]:
            fail(f"message {number} of {stream} is in {times} manifests")
        if last > stored(stream):
            fail(f"message {last} of {stream} was read, and {stored(stream)} are stored")


def _numbers(manifests: Iterable[Manifest]) -> Iterator[tuple[Stream, int]]:
    for manifest in manifests:
        for each in manifest.ranges:
            for number in range(each.first, each.last + 1):
                yield each.stream, number
