"""Reads what the pods of this node use, from their control groups."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from joulie_agent.measure.use import MINUTE_S, PodSpells, Spell, Wait, line_of
from joulie_agent.sources import cgroups
from joulie_agent.sources.cgroups import NOT_COUNTED, Waited
from joulie_agent.sources.host import Host, Unreadable
from joulie_bus.events import PodsUsed, PodUse, UseSource, packed_uid
from joulie_bus.events.bounds import MOST_METERED_PODS

READ_EACH_S = 10.0
LONGEST_MINUTE_S = 150.0  # after a longer pause the mean says nothing about a minute


class _Counted(NamedTuple):
    """What the counters of a pod say."""

    used_ns: int
    waited: Waited


class _Memory:
    """The working sets of a pod that were read in this minute."""

    def __init__(self) -> None:
        self._sum = self._peak = self._count = 0

    def add(self, size: int) -> None:
        self._sum, self._count = self._sum + size, self._count + 1
        self._peak = max(self._peak, size)

    def mean_and_peak_mib(self) -> tuple[float | None, int | None]:
        if not self._count:
            return None, None
        return self._sum / self._count / 2**20, -(-self._peak >> 20)


class UseMeter:
    def __init__(self, host: Host, node: str) -> None:
        self._host = host
        self._node = node
        self._spells = PodSpells()
        self._memory: dict[str, _Memory] = {}
        self._counted: dict[str, _Counted] = {}
        self._read_s = self._minute_s = -LONGEST_MINUTE_S

    def observe(self, at_s: float) -> PodsUsed | None:
        """Reads the groups if it is time. What is to be published now, if there is any."""
        if at_s - self._read_s < READ_EACH_S:
            return None
        self._read_s = at_s
        groups = cgroups.pod_groups(self._host)
        self._read_memory(groups)
        if at_s - self._minute_s < MINUTE_S:
            return None
        ended = self._spells.observe(self._end_minute(at_s, groups))
        lines = tuple(_lines(ended))[:MOST_METERED_PODS]
        if not lines:
            return None
        return PodsUsed(node=self._node, source=_source_of(groups.values()), pods=lines)

    def _read_memory(self, groups: Mapping[str, Path]) -> None:
        for uid, group in groups.items():
            with contextlib.suppress(Unreadable):  # without this controller nothing is known
                size = cgroups.working_set(self._host, group)
                self._memory.setdefault(uid, _Memory()).add(size)

    def _end_minute(self, at_s: float, groups: Mapping[str, Path]) -> dict[str, Spell]:
        """The last minute of each pod that ran all of it."""
        before, passed_s = self._counted, at_s - self._minute_s
        after = self._counted = dict(self._counters(groups))
        memory, self._memory, self._minute_s = self._memory, {}, at_s
        if passed_s >= LONGEST_MINUTE_S:
            return {}
        return {
            uid: _spell(passed_s, before[uid], counted, memory.get(uid) or _Memory())
            for uid, counted in after.items()
            if uid in before and counted.used_ns >= before[uid].used_ns
        }

    def _counters(self, groups: Mapping[str, Path]) -> Iterator[tuple[str, _Counted]]:
        for uid, group in groups.items():
            with contextlib.suppress(Unreadable):  # the pod has just ended
                used_ns = cgroups.used_ns(self._host, group)
                yield uid, _Counted(used_ns, cgroups.waited_us(self._host, group))


def _source_of(groups: Iterable[Path]) -> UseSource:
    return "cgroup-v1" if any(map(cgroups.is_of_version_1, groups)) else "cgroup-v2"


def _spell(passed_s: float, before: _Counted, after: _Counted, memory: _Memory) -> Spell:
    cpu, of_memory, io = (
        _wait(*each, passed_s) for each in zip(before.waited, after.waited, strict=True)
    )
    used_ns = after.used_ns - before.used_ns
    return Spell(passed_s, used_ns, *memory.mean_and_peak_mib(), (cpu, of_memory, io))


def _wait(before_us: int, after_us: int, passed_s: float) -> Wait:
    if NOT_COUNTED in (before_us, after_us) or after_us < before_us:
        return None
    return min(1000, round((after_us - before_us) / passed_s / 1000))


def _lines(ended: Mapping[str, Spell]) -> Iterator[PodUse]:
    for uid in sorted(ended):
        with contextlib.suppress(ValueError):  # no uid of Kubernetes
            yield line_of(packed_uid(uid), ended[uid])
