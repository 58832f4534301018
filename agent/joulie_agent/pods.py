"""Counts the energy of the pods of this node."""

from joulie_agent.measure.pods import Devices, Energy, PodCounters, Sample
from joulie_agent.sources import cgroups, cpu_time
from joulie_agent.sources.host import Host, Unreadable

NS_PER_TICK = 10_000_000  # of /proc/stat, on all platforms that Kubernetes has


class PodMeter:
    """Counters of energy by the uid of the pod, from when the agent started."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._counters = PodCounters()

    def lost(self) -> None:
        self._counters.lost()

    def observe(self, at_s: float, energy: Energy, devices: Devices) -> None:
        self._counters.observe(self._sample(at_s, energy), devices)

    def totals_uj(self) -> dict[str, int]:
        return self._counters.totals_uj()

    def _sample(self, at_s: float, energy: Energy) -> Sample | None:
        try:
            ticks = cpu_time.read(self._host)
        except Unreadable:
            return None
        busy_ns, total_ns = ticks.busy * NS_PER_TICK, ticks.total * NS_PER_TICK
        return Sample(at_s, energy, busy_ns, total_ns, dict(self._pod_times()))

    def _pod_times(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for uid, group in cgroups.pod_groups(self._host).items():
            try:
                found.append((uid, cgroups.used_ns(self._host, group)))
            except Unreadable:
                continue  # the pod has just ended
        return found
