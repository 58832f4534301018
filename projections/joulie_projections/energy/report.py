"""Reports of energy: intervals of a period, added up by what a question names. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from joulie_projections.energy.intervals import (
    GroupEnergy,
    Interval,
    NodeEnergy,
)

UJ_PER_KWH = 3_600_000_000_000
MS_PER_HOUR = 3_600_000
By = Literal["node", "plan", "namespace", "workload", "pod"]
NOT_SHARED = "(free)"  # idle energy of what no pod occupies
NO_PLAN = "(none)"


class Share(NamedTuple):
    """One line of a report; `idle_uj` of a pod or group is its share of idle energy."""

    pods_uj: int
    idle_uj: int

    def plus(self, pods_uj: int, idle_uj: int) -> "Share":
        return Share(self.pods_uj + pods_uj, self.idle_uj + idle_uj)


NOTHING = Share(0, 0)


class EnergyReport(NamedTuple):
    from_ms: int
    to_ms: int
    pods_uj: int
    idle_uj: int
    modelled_uj: int
    unknown_uj: int
    unknown_ms: int
    by: dict[str, Share]

    @property
    def meter_uj(self) -> int:
        return self.pods_uj + self.idle_uj


def report_of(intervals: Sequence[Interval], by: By) -> EnergyReport:
    """Adds up the intervals, which do not overlap."""
    nodes = [row for interval in intervals for row in interval.nodes]
    lines = _BY[by](intervals)
    pods_uj, idle_uj = sum(row.pods_uj for row in nodes), sum(row.idle_uj for row in nodes)
    if by not in ("node", "plan"):
        shared = sum(line.idle_uj for line in lines.values())
        lines[NOT_SHARED] = Share(0, idle_uj - shared)
    return EnergyReport(
        min((interval.start_ms for interval in intervals), default=0),
        max((interval.end_ms for interval in intervals), default=0),
        pods_uj,
        idle_uj,
        sum(row.modelled_uj for row in nodes),
        sum(row.unknown_uj for row in nodes),
        sum(row.unknown_ms for row in nodes),
        dict(sorted(lines.items(), key=_largest_first)),
    )


def as_json(report: EnergyReport, by: By) -> dict[str, Any]:
    """Energy in kWh; times in milliseconds since 1970."""
    return {
        "from": report.from_ms,
        "to": report.to_ms,
        "meter_kwh": kwh(report.meter_uj),
        "pods_kwh": kwh(report.pods_uj),
        "idle_kwh": kwh(report.idle_uj),
        "modelled_kwh": kwh(report.modelled_uj),
        "unknown_kwh": kwh(report.unknown_uj),
        "unknown_node_hours": report.unknown_ms / MS_PER_HOUR,
        "by": [
            {
                by: name,
                "kwh": kwh(share.pods_uj + share.idle_uj),
                "pods_kwh": kwh(share.pods_uj),
                "idle_kwh": kwh(share.idle_uj),
            }
            for name, share in report.by.items()
        ],
    }


def kwh(microjoules: int) -> float:
    return microjoules / UJ_PER_KWH


def _largest_first(line: tuple[str, Share]) -> tuple[int, str]:
    name, share = line
    return -(share.pods_uj + share.idle_uj), name


def _added(rows: Iterable[tuple[str, int, int]]) -> dict[str, Share]:
    lines: dict[str, Share] = defaultdict(lambda: NOTHING)
    for name, pods_uj, idle_uj in rows:
        lines[name] = lines[name].plus(pods_uj, idle_uj)
    return lines


def _nodes(name_of: Callable[[NodeEnergy], str]) -> "_Lines":
    return lambda intervals: _added(
        (name_of(row), row.pods_uj, row.idle_uj) for each in intervals for row in each.nodes
    )


def _groups(name_of: Callable[[GroupEnergy], str]) -> "_Lines":
    return lambda intervals: _added(
        (name_of(row), row.pods_uj, row.idle_uj) for each in intervals for row in each.groups
    )


def _pods(intervals: Sequence[Interval]) -> dict[str, Share]:
    return _added(
        (f"{row.namespace}/{row.name}", row.pods_uj, row.idle_uj)
        for each in intervals
        for row in each.pods
    )


_Lines = Callable[[Sequence[Interval]], dict[str, Share]]
_BY: dict[By, _Lines] = {
    "node": _nodes(lambda row: row.node),
    "plan": _nodes(lambda row: row.plan or NO_PLAN),
    "namespace": _groups(lambda row: row.namespace),
    "workload": _groups(lambda row: row.workload),
    "pod": _pods,
}
