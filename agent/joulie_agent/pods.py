"""Counts the energy of the pods of this node."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from joulie_agent.measure.pods import Used, shares_uj
from joulie_agent.sources import cgroups, cpu_time
from joulie_agent.sources.host import Host, Unreadable
from joulie_bus.events.bounds import MOST_METERED_PODS
from joulie_bus.metering.meters import Meter

NS_PER_TICK = 10_000_000  # of /proc/stat, on all platforms that Kubernetes has


class Energy(NamedTuple):
    """What the node and its cards have counted so far, in microjoules."""

    node_uj: int
    card_uj: Mapping[str, int]
    whole: frozenset[Meter]  # that add up to the node


class Devices(NamedTuple):
    """The pods of each card by their uids, and the highest limit of a card; 0: unknown."""

    holders: Mapping[str, Sequence[str]] = {}
    card_max_mw: int = 0
    unmetered: frozenset[str] = frozenset()  # pods with parts of cards that have no meter


class Sample(NamedTuple):
    at_s: float
    energy: Energy
    busy: int  # ticks of all processors
    total: int
    pod_ns: Mapping[str, int]


class PodMeter:
    """Counters of energy by the uid of the pod, from when the agent started."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._last: Sample | None = None
        self._counted: dict[str, float] = {}
        self._unmetered: frozenset[str] = frozenset()

    def lost(self) -> None:
        """The energy of the node is not known: the time until the next sample is left out."""
        self._last = None

    def observe(self, at_s: float, energy: Energy, devices: Devices) -> None:
        now = self._sample(at_s, energy)
        before, self._last = self._last, now
        self._unmetered = devices.unmetered
        if before is None or now is None or now.total <= before.total:
            return
        if before.energy.whole != now.energy.whole:
            return
        for uid, energy_uj in shares_uj(_used(before, now, devices)).items():
            self._counted[uid] = self._counted.get(uid, 0.0) + energy_uj
        self._counted = {uid: uj for uid, uj in self._counted.items() if uid in now.pod_ns}

    def totals_uj(self) -> dict[str, int]:
        """Of the pods that run and can be metered, a thousand at most."""
        metered = [each for each in self._counted.items() if each[0] not in self._unmetered]
        return {uid: round(uj) for uid, uj in sorted(metered)[:MOST_METERED_PODS]}

    def _sample(self, at_s: float, energy: Energy) -> Sample | None:
        try:
            ticks = cpu_time.read(self._host)
        except Unreadable:
            return None
        return Sample(at_s, energy, ticks.busy, ticks.total, dict(self._pod_times()))

    def _pod_times(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for uid, group in cgroups.pod_groups(self._host).items():
            try:
                found.append((uid, cgroups.used_ns(self._host, group)))
            except Unreadable:
                continue  # the pod has just ended
        return found


def _used(before: Sample, now: Sample, devices: Devices) -> Used:
    card_uj = {
        card: max(0, uj - before.energy.card_uj.get(card, uj))
        for card, uj in now.energy.card_uj.items()
    }
    busy, total = now.busy - before.busy, now.total - before.total
    return Used(
        passed_s=now.at_s - before.at_s,
        rest_uj=max(0.0, now.energy.node_uj - before.energy.node_uj - sum(card_uj.values())),
        busy=min(1.0, max(0.0, busy / total)),
        busy_ns=max(0.0, busy * NS_PER_TICK),
        pod_ns={uid: max(0, ns - before.pod_ns.get(uid, 0)) for uid, ns in now.pod_ns.items()},
        card_uj=card_uj,
        card_max_mw=devices.card_max_mw,
        holders=devices.holders,
    )
