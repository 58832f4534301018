"""What caps save: the energy that pods took on capped nodes, beside that of comparable pods.

The log knows no measure of work, so a pod that has finished stands for its work. Pods count as
comparable if they have the same namespace, class and requests and ran on the same hardware. Only
pods whose caps did not change while they ran count, and whose energy is measured throughout.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, variance
from typing import NamedTuple

from joulie_audit.ledger.pods_in_log import Lives, PodLife
from joulie_bus.events import (
    CapsMeasured,
    CapsSet,
    Fact,
    HardwareDiscovered,
    PodAsk,
    PodBound,
    PodFinished,
    PodGone,
    WorkloadClass,
)
from joulie_projections.energy.intervals import Interval
from joulie_projections.state.state import ClusterState

FEWEST = 30  # pods of each kind that a figure needs
NORMAL_95 = 1.96
PARTS = 1000
Group = tuple[object, ...]


class CappedLives(Lives):
    """Lives of pods, with the caps and the hardware of their nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.capped: dict[str, bool] = {}  # by uid; without pods whose caps changed
        self.hardware: dict[str, tuple[str, str]] = {}  # by uid: models of CPU and cards
        self._caps: dict[str, CapsSet] = {}
        self._models: dict[str, tuple[str, str]] = {}
        self._running: dict[str, set[str]] = defaultdict(set)

    def begin(self, state: ClusterState, at_ms: int) -> None:
        super().begin(state, at_ms)
        for name, node in state.nodes.items():
            if (found := node.hardware) is not None:
                self._models[name] = (found.cpu_model, found.gpu_model)
            caps = {"cpu_cap_pct": node.cpu_cap_pct, "gpu_cap_pct": node.gpu_cap_pct}
            self._caps[name] = CapsSet(plan="", node=name, **caps)
        for uid, pod in state.pods.items():
            if pod.node and not pod.finished:
                self._begin(uid)
                if pod.node not in state.nodes or state.nodes[pod.node].caps_at > pod.bound_at:
                    self.capped.pop(uid)

    def fold(self, fact: Fact, at_ms: int) -> None:
        super().fold(fact, at_ms)
        match fact:
            case HardwareDiscovered():
                self._models[fact.node] = (fact.cpu_model, fact.gpu_model)
            case CapsSet():
                self._caps[fact.node] = fact
                for uid in self._running[fact.node]:
                    if self.capped.get(uid) is not self._is_capped(self.pods[uid]):
                        self.capped.pop(uid, None)
            case PodBound():
                self._begin(fact.pod.uid)
            case PodFinished() | PodGone() if fact.uid in self.pods:
                self._running[self.pods[fact.uid].node].discard(fact.uid)
            case _:
                pass

    def _begin(self, uid: str) -> None:
        life = self.pods[uid]
        if uid in self.hardware or life.end_ms:
            return
        self.capped[uid] = self._is_capped(life)
        self.hardware[uid] = self._models.get(life.node, ("", ""))
        self._running[life.node].add(uid)

    def _is_capped(self, life: PodLife) -> bool:
        """By the cap of what the pod works on: its cards, else the CPUs."""
        caps = self._caps.get(life.node)
        if caps is None:
            return False
        percent = caps.gpu_cap_pct if life.pod.gpu_milli else caps.cpu_cap_pct
        return percent is not None and percent < 100


class Finished(NamedTuple):
    """A pod that finished, and the energy of its whole life: its own, and its share of idle."""

    group: Group
    is_capped: bool
    energy_uj: int


class Measured(NamedTuple):
    """Without a change if too few pods can be compared."""

    workload: WorkloadClass
    capped_pods: int
    other_pods: int
    change: tuple[float, float, float] | None = None  # low, mid, high; -0.1 is a tenth less

    def event(self, from_ms: int, to_ms: int) -> CapsMeasured | None:
        if self.change is None:
            return None
        low, mid, high = (round(PARTS * each) for each in self.change)
        return CapsMeasured(
            workload=self.workload,
            low_permille=max(-PARTS, low),
            mid_permille=mid,
            high_permille=high,
            capped_pods=self.capped_pods,
            other_pods=self.other_pods,
            from_ms=from_ms,
            to_ms=to_ms,
        )


def finished_pods(
    lives: CappedLives, intervals: Sequence[Interval], complete_to_ms: int
) -> dict[str, list[Finished]]:
    """The pods of each class that began and ended inside of the intervals, as far as the ledger is
    complete: of a later end, the energy is not."""
    energy: dict[str, int] = defaultdict(int)
    unmeasured = set[str]()
    for interval in intervals:
        gaps = {row.node for row in interval.nodes if row.unknown_ms or row.modelled_uj}
        for row in interval.pods:
            energy[row.uid] += row.pods_uj + row.idle_uj
            if row.node in gaps:
                unmeasured.add(row.uid)
    first = min((interval.start_ms for interval in intervals), default=0)
    last = min(complete_to_ms, max((interval.end_ms for interval in intervals), default=0))
    found: dict[str, list[Finished]] = defaultdict(list)
    for uid, is_capped in lives.capped.items():
        life = lives.pods[uid]
        is_inside = first <= life.start_ms and 0 < life.end_ms <= last
        if is_inside and uid not in unmeasured and energy.get(uid, 0) > 0:
            group = _group(life.pod, lives.hardware[uid])
            found[life.pod.workload].append(Finished(group, is_capped, energy[uid]))
    return found


def _group(pod: PodAsk, hardware: tuple[str, str]) -> Group:
    return pod.namespace, pod.cpu_milli, pod.memory_bytes, pod.gpu_milli, pod.gpu, hardware


def effect_of(workload: WorkloadClass, pods: Iterable[Finished]) -> Measured:
    """The energy of the capped pods, divided by what as many others of their groups took."""
    groups: dict[Group, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for pod in pods:
        groups[pod.group][pod.is_capped].append(pod.energy_uj)
    shared = {g: both for g, both in groups.items() if min(map(len, both)) > 1}
    capped = sum(len(both[True]) for both in shared.values())
    others = sum(len(both[False]) for both in shared.values())
    if min(capped, others) < FEWEST:
        return Measured(workload, capped, others)
    return Measured(workload, capped, others, _change(shared))


def _change(groups: Mapping[Group, tuple[list[int], list[int]]]) -> tuple[float, float, float]:
    """With a 95 % interval, by the variances within the groups."""
    took = expected = took_var = expected_var = 0.0
    for others, capped in groups.values():
        count = len(capped)
        took += sum(capped)
        took_var += count * variance(capped)
        expected += count * fmean(others)
        expected_var += count * count * variance(others) / len(others)
    ratio = took / expected
    half = NORMAL_95 * ratio * math.sqrt(took_var / took**2 + expected_var / expected**2)
    return ratio - half - 1, ratio - 1, ratio + half - 1
