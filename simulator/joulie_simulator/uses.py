"""What the pods of simulated nodes use, as their agents would publish it.

Processor time is that of the simulation; of the memory, pods use a part of their request that their
uid decides. Seconds are simulated ones.
"""

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from joulie_bus.events import PodsUsed, PodUse, packed_uid
from joulie_bus.events.bounds import MOST_METERED_PODS, MOST_USE_S
from joulie_simulator.cluster.cluster import SimCluster, SimNode

EACH_S = 10.0  # of real time, for each node
LEAST_SHARE, MOST_SHARE, PEAK = 0.3, 0.8, 1.1  # of the requested memory; the peak, of the mean


class _Before(NamedTuple):
    at_s: float
    now_s: float
    core_s: Mapping[str, float]


class Uses:
    def __init__(self, cluster: SimCluster) -> None:
        self._nodes = cluster.nodes
        self._before: dict[str, _Before] = {}

    def facts(self, names: Iterable[str], now_s: float, at_s: float) -> list[PodsUsed]:
        """Of those nodes of which it is time. `now_s` is simulated time, `at_s` real time."""
        due = [name for name in names if self._is_due(name, at_s)]
        found = [self._fact(self._nodes[name], now_s, at_s) for name in due]
        return [fact for fact in found if fact.pods]

    def _is_due(self, name: str, at_s: float) -> bool:
        before = self._before.get(name)
        return before is None or at_s - before.at_s >= EACH_S

    def _fact(self, node: SimNode, now_s: float, at_s: float) -> PodsUsed:
        core_s = node.pod_core_s(now_s)
        before = self._before.get(node.name)
        self._before[node.name] = _Before(at_s, now_s, core_s)
        if before is None or now_s - before.now_s < 1:
            return PodsUsed(node=node.name, source="simulator")
        lines = tuple(_lines(node, before.core_s, core_s, now_s - before.now_s))
        return PodsUsed(node=node.name, source="simulator", pods=lines[:MOST_METERED_PODS])


def _lines(
    node: SimNode, before: Mapping[str, float], after: Mapping[str, float], passed_s: float
) -> Iterator[PodUse]:
    seconds = min(MOST_USE_S, round(passed_s))
    for uid in sorted(before.keys() & after.keys()):
        cpu_milli = max(0, round((after[uid] - before[uid]) / passed_s * 1000))
        asked_mib = node.running[uid].job.memory_mib
        used_mib = round(asked_mib * _share(uid))
        with contextlib.suppress(ValueError):  # a uid that would be taken for a UUID
            yield PodUse(packed_uid(uid), seconds, cpu_milli, used_mib, round(used_mib * PEAK))


def _share(uid: str) -> float:
    """The same for this pod at any time, and drawn from no other chance of the simulation."""
    return LEAST_SHARE + (MOST_SHARE - LEAST_SHARE) * zlib.crc32(uid.encode()) / 2**32
