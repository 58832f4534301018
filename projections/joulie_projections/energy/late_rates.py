"""Prices and intensities for energy that had none when it was counted.

The log may learn a rate later than the energy to which it applies: a tariff that began in January
and was added in March. What was counted without a rate gets the one that was in force then, as far
as the ledger knows it; what had a rate keeps it.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from joulie_projections.energy.grid import KINDS, Grid, Kind, Rate
from joulie_projections.energy.intervals import (
    CardEnergy,
    Interval,
    NodeEnergy,
    PodEnergy,
    groups_of,
)
from joulie_projections.energy.ledger import Ledger

NodeRow = TypeVar("NodeRow", NodeEnergy, PodEnergy, CardEnergy)
Rates = Mapping[Kind, Rate | None]
_SUMS: Mapping[Kind, tuple[str, str]] = {
    "price": ("cost_n", "priced_uj"),
    "intensity": ("co2_ug", "weighed_uj"),
}


class LateRates:
    """Those that the ledger knows now. A node that is gone counts as one without a zone."""

    def __init__(self, ledger: Ledger) -> None:
        self._grid: Grid = ledger.grid
        self._has_rates = any(True for _ in ledger.grid)
        self._zones = {name: node.zone for name, node in ledger.nodes.items()}

    def change(self, interval: Interval) -> bool:
        """Whether any energy of the interval gets a rate. Groups then need its pods."""
        if not self._has_rates:
            return False
        zones = self._rates_by_zone(interval)
        return any(_lacks(row, zones[self._zone(row.node)]) for row in interval.nodes)

    def rated(self, interval: Interval) -> Interval:
        """With pods, the groups are theirs."""
        zones = self._rates_by_zone(interval)

        def of(rows: Iterable[NodeRow]) -> list[NodeRow]:
            return [_rated(row, zones[self._zone(row.node)]) for row in rows]

        pods = of(interval.pods)
        used = {rate for rates in zones.values() for rate in rates.values() if rate}
        return interval._replace(
            nodes=of(interval.nodes),
            pods=pods,
            cards=of(interval.cards),
            groups=groups_of(pods) if pods else interval.groups,
            grid=sorted({*interval.grid, *used}),
        )

    def _zone(self, node: str) -> str:
        return self._zones.get(node, "")

    def _rates_by_zone(self, interval: Interval) -> Mapping[str, Rates]:
        names = [row.node for row in interval.nodes]
        names += [row.node for row in interval.pods] + [row.node for row in interval.cards]
        zones = dict.fromkeys(map(self._zone, names))
        return {zone: {kind: self._whole(kind, zone, interval) for kind in KINDS} for zone in zones}

    def _whole(self, kind: Kind, zone: str, interval: Interval) -> Rate | None:
        """The rate that was in force from the start of the interval to its end."""
        rate = self._grid.in_force(kind, zone, interval.start_ms)
        return rate if rate == self._grid.in_force(kind, zone, interval.end_ms - 1) else None


def _lacks(row: NodeEnergy, rates: Rates) -> bool:
    energy_uj = row.pods_uj + row.idle_uj
    return any(
        rate is not None and energy_uj > getattr(row, _SUMS[kind][1])
        for kind, rate in rates.items()
    )


def _rated(row: NodeRow, rates: Rates) -> NodeRow:
    found = {}
    for kind, rate in rates.items():
        worth, rated = _SUMS[kind]
        late_uj = row.pods_uj + row.idle_uj - getattr(row, rated)
        if rate is not None and late_uj > 0:
            found[worth] = getattr(row, worth) + round(late_uj * rate.per_uj)
            found[rated] = getattr(row, rated) + late_uj
    return replace(row, **found) if found else row
