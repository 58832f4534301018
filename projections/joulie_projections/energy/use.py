"""What the pods of a workload use, per day: sums and histograms in whole numbers.

A workload has the pods of one namespace whose names differ in their generated suffix only. All
numbers are sums, or the largest of all, so their order does not count. Time is in seconds of pods:
a minute of two pods is 120.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from joulie_bus.core.inflating import inflated
from joulie_bus.errors import LedgerDamaged
from joulie_bus.events import PodsUsed, PodUse, unpacked_uid
from joulie_projections.energy.intervals import DAY_MS, LARGEST_BODY, LEVEL, start_of
from joulie_projections.pods.workload_name import workload_of

KEPT_MS = 14 * DAY_MS
_BITS = 4  # 16 buckets for each doubling: a bucket is no wider than 6.25 % of its values
_EXACT = 2 << _BITS  # smaller values have a bucket each


class Histogram(msgspec.Struct, array_like=True):
    """Seconds by bucket."""

    seconds: dict[int, int] = {}

    def add(self, value: int, seconds: int) -> None:
        bucket = bucket_of(value)
        self.seconds[bucket] = self.seconds.get(bucket, 0) + seconds

    def merge(self, other: "Histogram") -> None:
        for bucket, seconds in other.seconds.items():
            self.seconds[bucket] = self.seconds.get(bucket, 0) + seconds

    def sort(self) -> None:
        self.seconds = dict(sorted(self.seconds.items()))

    def percentile(self, percent: int) -> int:
        """The upper end of the bucket up to which so much of the time lies; 0 without any."""
        wanted, counted = sum(self.seconds.values()) * percent, 0
        for bucket in sorted(self.seconds):
            counted += self.seconds[bucket]
            if counted * 100 >= wanted:
                return highest_in(bucket)
        return 0

    def share_above(self, value: int) -> float:
        """The share of the time with more than this value, as far as buckets tell."""
        whole = sum(self.seconds.values())
        last = bucket_of(value)
        above = sum(s for bucket, s in self.seconds.items() if bucket > last)
        return above / whole if whole else 0.0


def bucket_of(value: int) -> int:
    shift = max(0, value.bit_length() - _BITS - 1)
    return (shift << _BITS) + (value >> shift)


def highest_in(bucket: int) -> int:
    """The largest value that the bucket has."""
    if bucket < _EXACT:
        return bucket
    shift = (bucket >> _BITS) - 1
    return ((bucket - (shift << _BITS) + 1) << shift) - 1


class Waiting(msgspec.Struct, array_like=True):
    """How long pods waited, in thousandths of a second, of the seconds in which that is known."""

    known_s: int = 0
    waited: int = 0

    def add(self, permille: int | None, seconds: int) -> None:
        if permille is not None:
            self.known_s += seconds
            self.waited += permille * seconds

    def merge(self, other: "Waiting") -> None:
        self.known_s += other.known_s
        self.waited += other.waited

    @property
    def share(self) -> float | None:
        return self.waited / self.known_s / 1000 if self.known_s else None


class WorkloadUse(msgspec.Struct, array_like=True):
    namespace: str
    name: str
    seconds: int = 0
    first_ms: int = 0
    last_ms: int = 0
    cpu_milli_s: int = 0  # the sum of millicores over the seconds
    cpu_peak_milli: int = 0
    cpu: Histogram = msgspec.field(default_factory=Histogram)  # millicores
    memory: Histogram = msgspec.field(default_factory=Histogram)  # MiB; only of known seconds
    memory_peak_mib: int = 0
    cpu_waits: Waiting = msgspec.field(default_factory=Waiting)
    memory_waits: Waiting = msgspec.field(default_factory=Waiting)
    io_waits: Waiting = msgspec.field(default_factory=Waiting)

    def add(self, line: PodUse, at_ms: int) -> None:
        self._cover(line.seconds, at_ms, at_ms)
        self.cpu_milli_s += line.cpu_milli * line.seconds
        self.cpu_peak_milli = max(self.cpu_peak_milli, line.cpu_milli)
        self.cpu.add(line.cpu_milli, line.seconds)
        if line.memory_mib is not None:
            self.memory.add(line.memory_mib, line.seconds)
            self.memory_peak_mib = max(
                self.memory_peak_mib, line.memory_mib, line.peak_mib or line.memory_mib
            )
        self.cpu_waits.add(line.cpu_wait, line.seconds)
        self.memory_waits.add(line.memory_wait, line.seconds)
        self.io_waits.add(line.io_wait, line.seconds)

    def merge(self, other: "WorkloadUse") -> None:
        self._cover(other.seconds, other.first_ms, other.last_ms)
        self.cpu_milli_s += other.cpu_milli_s
        self.cpu_peak_milli = max(self.cpu_peak_milli, other.cpu_peak_milli)
        self.cpu.merge(other.cpu)
        self.memory.merge(other.memory)
        self.memory_peak_mib = max(self.memory_peak_mib, other.memory_peak_mib)
        self.cpu_waits.merge(other.cpu_waits)
        self.memory_waits.merge(other.memory_waits)
        self.io_waits.merge(other.io_waits)

    def sort(self) -> None:
        self.cpu.sort()
        self.memory.sort()

    def _cover(self, seconds: int, first_ms: int, last_ms: int) -> None:
        self.first_ms = min(self.first_ms or first_ms, first_ms)
        self.last_ms = max(self.last_ms, last_ms)
        self.seconds += seconds


class DayOfUse(NamedTuple):
    start_ms: int
    workloads: Sequence[WorkloadUse]


class Running(Protocol):
    """A pod in the ledger."""

    namespace: str
    name: str
    node: str


class Uses:
    """The use of the running day. `closed` collects the days that have ended."""

    def __init__(self, day_ms: int = 0, workloads: Iterable[WorkloadUse] = ()) -> None:
        self.day_ms = day_ms
        self._by_name = {(each.namespace, each.name): each for each in workloads}
        self.closed: list[DayOfUse] = []

    def fold(self, fact: PodsUsed, at_ms: int, pods: Mapping[str, Running]) -> None:
        """Of pods that are or were bound to this node. Time does not run back."""
        day_ms = max(self.day_ms, start_of("day", at_ms))
        if day_ms != self.day_ms:
            self._end_day()
            self.day_ms = day_ms
        for line in fact.pods:
            pod = pods.get(unpacked_uid(line.pod))
            if pod is not None and pod.node == fact.node:
                self._of(pod.namespace, workload_of(pod.name)).add(line, at_ms)

    def running(self) -> list[WorkloadUse]:
        """In the order of their names."""
        return [self._by_name[key] for key in sorted(self._by_name)]

    def take_closed(self) -> list[DayOfUse]:
        closed, self.closed = self.closed, []
        return closed

    def _end_day(self) -> None:
        if self._by_name:
            self.closed.append(DayOfUse(self.day_ms, self.running()))
        self._by_name = {}

    def _of(self, namespace: str, name: str) -> WorkloadUse:
        key = namespace, name
        known = self._by_name.get(key)
        if known is None:
            known = self._by_name[key] = WorkloadUse(namespace, name)
        return known


def summed(days: Iterable[Iterable[WorkloadUse]]) -> list[WorkloadUse]:
    """One of each workload, in the order of their names."""
    sums: dict[tuple[str, str], WorkloadUse] = {}
    for day in days:
        for each in day:
            key = each.namespace, each.name
            sums.setdefault(key, WorkloadUse(*key)).merge(each)
    return [sums[key] for key in sorted(sums)]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[WorkloadUse]).decode


def encoded(workloads: Sequence[WorkloadUse]) -> bytes:
    """Equal uses give equal bytes, in whatever order they were added."""
    for each in workloads:
        each.sort()
    return _encode(workloads)


def decoded(body: bytes) -> list[WorkloadUse]:
    """Raises LedgerDamaged."""
    try:
        return _decode(body)
    except msgspec.MsgspecError as error:
        raise LedgerDamaged from error


def packed(workloads: Sequence[WorkloadUse]) -> bytes:
    return zlib.compress(encoded(workloads), LEVEL)


def unpacked(body: bytes) -> list[WorkloadUse]:
    """Raises LedgerDamaged."""
    try:
        return decoded(inflated(body, LARGEST_BODY))
    except zlib.error as error:
        raise LedgerDamaged from error
