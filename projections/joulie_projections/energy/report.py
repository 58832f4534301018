"""Reports of energy: intervals of a period, added up by what a question names."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Literal, NamedTuple

from joulie_projections.energy.grid import Rate
from joulie_projections.energy.intervals import (
    CardEnergy,
    GroupEnergy,
    Interval,
    NodeEnergy,
    PodEnergy,
)

UJ_PER_KWH = 3_600_000_000_000
MS_PER_HOUR = 3_600_000
NANO, UG_PER_KG, MG_PER_G = 10**9, 10**9, 1000
BEHIND_S = 10.0  # two passes of the ledger: one that lacks older facts is reported
By = Literal["node", "plan", "namespace", "workload", "pod", "card"]
NOT_SHARED = "(free)"  # idle energy of what no pod occupies
NO_PLAN = "(none)"
NOT_ON_CARDS = "(no card)"  # processors, memory, fans; and cards that nothing names


Row = NodeEnergy | GroupEnergy | PodEnergy | CardEnergy


class Worth(NamedTuple):
    """Cost and carbon, and the energy that has them."""

    cost_n: int = 0
    priced_uj: int = 0
    co2_ug: int = 0
    weighed_uj: int = 0

    def plus(self, other: "Worth") -> "Worth":
        return Worth(*(mine + its for mine, its in zip(self, other, strict=True)))

    def minus(self, other: "Worth") -> "Worth":
        return Worth(*(mine - its for mine, its in zip(self, other, strict=True)))


NO_WORTH = Worth()


def worth_of(row: Row) -> Worth:
    return Worth(row.cost_n, row.priced_uj, row.co2_ug, row.weighed_uj)


class Share(NamedTuple):
    """One line of a report; `idle_uj` of a pod or group is its share of idle energy."""

    pods_uj: int
    idle_uj: int
    worth: Worth = NO_WORTH
    modelled_uj: int = 0  # of cards only

    @property
    def energy_uj(self) -> int:
        return self.pods_uj + self.idle_uj


class EnergyReport(NamedTuple):
    from_ms: int
    to_ms: int
    pods_uj: int
    idle_uj: int
    modelled_uj: int
    unknown_uj: int
    unknown_ms: int
    by: dict[str, Share]
    worth: Worth = NO_WORTH
    grid: Sequence[Rate] = ()  # the rates that were in force
    complete_to_ms: int = 0  # of the ledger: it holds no later reading

    @property
    def currency(self) -> str:
        return next((rate.unit for rate in self.grid if rate.kind == "price"), "")

    @property
    def meter_uj(self) -> int:
        return self.pods_uj + self.idle_uj


class Reading(NamedTuple):
    """Intervals that cover a period, as far as the ledger has come."""

    intervals: Sequence[Interval]
    position: int = 0
    complete_to_ms: int = 0  # the time of its newest reading
    behind_s: float = 0.0  # how long ago the oldest fact that it lacks was committed

    def report(self, by: By) -> EnergyReport:
        """It ends where the ledger is complete: a running interval does not say when it ends."""
        found = report_of(self.intervals, by)
        to_ms = min(found.to_ms, self.complete_to_ms)
        return found._replace(to_ms=to_ms, complete_to_ms=self.complete_to_ms)


def report_of(intervals: Sequence[Interval], by: By) -> EnergyReport:
    """Adds up the intervals, which do not overlap."""
    nodes = [row for interval in intervals for row in interval.nodes]
    lines = _BY[by](intervals)
    pods_uj, idle_uj = sum(row.pods_uj for row in nodes), sum(row.idle_uj for row in nodes)
    worth = _sum(map(worth_of, nodes))
    if by not in ("node", "plan"):
        shared = sum(line.idle_uj for line in lines.values())
        rest = worth.minus(_sum(line.worth for line in lines.values()))
        own_uj = pods_uj - sum(line.pods_uj for line in lines.values()) if by == "card" else 0
        lines[NOT_ON_CARDS if by == "card" else NOT_SHARED] = Share(own_uj, idle_uj - shared, rest)
    return EnergyReport(
        min((interval.start_ms for interval in intervals), default=0),
        max((interval.end_ms for interval in intervals), default=0),
        pods_uj,
        idle_uj,
        sum(row.modelled_uj for row in nodes),
        sum(row.unknown_uj for row in nodes),
        sum(row.unknown_ms for row in nodes),
        dict(sorted(lines.items(), key=_largest_first)),
        worth,
        sorted({rate for interval in intervals for rate in interval.grid}),
    )


def _sum(worths: Iterable[Worth]) -> Worth:
    return reduce(Worth.plus, worths, NO_WORTH)


def as_json(report: EnergyReport, by: By) -> dict[str, Any]:
    """Energy in kWh; times in milliseconds since 1970; null where nothing is known."""
    return {
        "from": report.from_ms,
        "to": report.to_ms,
        "complete_to": report.complete_to_ms,
        "meter_kwh": kwh(report.meter_uj),
        "pods_kwh": kwh(report.pods_uj),
        "idle_kwh": kwh(report.idle_uj),
        "modelled_kwh": kwh(report.modelled_uj),
        "unknown_kwh": kwh(report.unknown_uj),
        "unknown_node_hours": report.unknown_ms / MS_PER_HOUR,
        "currency": report.currency or None,
        **worth_json(report.worth, report.meter_uj),
        "by": [
            {
                by: name,
                "kwh": kwh(share.pods_uj + share.idle_uj),
                "pods_kwh": kwh(share.pods_uj),
                "idle_kwh": kwh(share.idle_uj),
                **worth_json(share.worth, share.energy_uj),
                **({"modelled_kwh": kwh(share.modelled_uj)} if by == "card" else {}),
            }
            for name, share in report.by.items()
        ],
        "grid": [rate_json(rate) for rate in report.grid],
    }


def worth_json(worth: Worth, energy_uj: int) -> dict[str, Any]:
    """The cost and the carbon of the part of the energy that has a price, or an intensity."""
    return {
        "cost": worth.cost_n / NANO if worth.priced_uj else None,
        "unpriced_kwh": kwh(energy_uj - worth.priced_uj),
        "kgco2e": worth.co2_ug / UG_PER_KG if worth.weighed_uj else None,
        "unweighed_kwh": kwh(energy_uj - worth.weighed_uj),
    }


def rate_json(rate: Rate) -> dict[str, Any]:
    is_price = rate.kind == "price"
    return {
        "kind": rate.kind,
        "zone": rate.zone,
        "from": rate.starts_ms,
        "to": rate.ends_ms or None,
        "per_kwh": rate.value / (NANO if is_price else MG_PER_G),
        "unit": rate.unit if is_price else "gCO2e",
        "source": rate.source,
        "estimated": rate.estimated,
    }


def kwh(microjoules: int) -> float:
    return microjoules / UJ_PER_KWH


def _largest_first(line: tuple[str, Share]) -> tuple[int, str]:
    name, share = line
    return -(share.pods_uj + share.idle_uj), name


def _added(rows: Iterable[tuple[str, Row]]) -> dict[str, Share]:
    """Sums in lists first: a report of a month by pod adds up more than a million rows."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0] * 6)
    for name, row in rows:
        line = sums[name]
        line[0] += row.pods_uj
        line[1] += row.idle_uj
        if row.priced_uj or row.weighed_uj:
            for place, amount in enumerate(worth_of(row), 2):
                line[place] += amount
    return {name: Share(line[0], line[1], Worth(*line[2:])) for name, line in sums.items()}


def _nodes(name_of: Callable[[NodeEnergy], str]) -> "_Lines":
    return lambda intervals: _added((name_of(row), row) for each in intervals for row in each.nodes)


def _groups(name_of: Callable[[GroupEnergy], str]) -> "_Lines":
    return lambda intervals: _added(
        (name_of(row), row) for each in intervals for row in each.groups
    )


def _cards(intervals: Sequence[Interval]) -> dict[str, Share]:
    rows = [(f"{row.node}/{row.card}", row) for each in intervals for row in each.cards]
    modelled: dict[str, int] = defaultdict(int)
    for name, row in rows:
        modelled[name] += row.modelled_uj
    shares = _added(rows)
    return {name: share._replace(modelled_uj=modelled[name]) for name, share in shares.items()}


def _pods(intervals: Sequence[Interval]) -> dict[str, Share]:
    return _added((f"{row.namespace}/{row.name}", row) for each in intervals for row in each.pods)


_Lines = Callable[[Sequence[Interval]], dict[str, Share]]
_BY: dict[By, _Lines] = {
    "node": _nodes(lambda row: row.node),
    "plan": _nodes(lambda row: row.plan or NO_PLAN),
    "namespace": _groups(lambda row: row.namespace),
    "workload": _groups(lambda row: row.workload),
    "pod": _pods,
    "card": _cards,
}
