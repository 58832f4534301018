"""What energy costs and the carbon that it stands for, by zone and time.

A rate is in force from its start until a later one starts or until its own end. A zone without a
rate in force has that of `EVERY_ZONE`; without that one too, the value of its energy is unknown.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from joulie_bus.events import GridFact, GridPriced
from joulie_bus.events.grid import EVERY_ZONE

NS_PER_MS = 1_000_000
UJ_PER_KWH = 3_600_000_000_000
UG_PER_MG = 1000
UNKNOWN = float("nan")
MOST_RATES = 2000  # of one zone: three weeks of quarters of an hour; later ones are not kept
Kind = Literal["price", "intensity"]
KINDS: tuple[Kind, ...] = ("price", "intensity")


class Rate(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """`value` is in billionths of the currency, or in milligrams of CO2e, per kWh."""

    kind: Kind
    zone: str
    starts_ms: int
    ends_ms: int  # 0: none
    value: int
    unit: str  # the currency; "" for carbon
    source: str
    estimated: bool = False

    @property
    def per_uj(self) -> float:
        """Billionths of the currency, or micrograms, per microjoule."""
        factor = 1 if self.kind == "price" else UG_PER_MG
        return self.value * factor / UJ_PER_KWH


def rate_of(fact: GridFact) -> Rate:
    starts_ms, ends_ms = fact.starts // NS_PER_MS, fact.ends // NS_PER_MS
    place = fact.zone, starts_ms, ends_ms
    if isinstance(fact, GridPriced):
        return Rate("price", *place, fact.nano_per_kwh, fact.currency, fact.source)
    return Rate("intensity", *place, fact.mg_per_kwh, "", fact.source, fact.estimated)


class Grid:
    """The rates that are in force at a time, and those that start later."""

    def __init__(self, currency: str = "") -> None:
        self.currency = currency  # of the first price: a sum has one currency
        self._rates: dict[tuple[Kind, str], list[Rate]] = {}  # by start

    def __iter__(self) -> Iterator[Rate]:
        for place in sorted(self._rates):
            yield from self._rates[place]

    def put(self, rate: Rate) -> None:
        """A later rate replaces that of the same start. A price in another currency is unknown."""
        if rate.kind == "price":
            self.currency = self.currency or rate.unit
        place = rate.kind, rate.zone
        others = [each for each in self._rates.get(place, ()) if each.starts_ms != rate.starts_ms]
        self._rates[place] = sorted([*others, rate], key=_start)[:MOST_RATES]

    def drop_before(self, at_ms: int) -> None:
        """Drops the rates that cannot be in force from this time on."""
        for place, rates in list(self._rates.items()):
            later = [each for each in rates if each.starts_ms > at_ms]
            started = [each for each in rates if each.starts_ms <= at_ms][-1:]
            if kept := [each for each in (*started, *later) if _lasts(each, at_ms)]:
                self._rates[place] = kept
            else:
                del self._rates[place]

    def in_force(self, kind: Kind, zone: str, at_ms: int) -> Rate | None:
        for name in (zone, EVERY_ZONE):
            started = [r for r in self._rates.get((kind, name), ()) if r.starts_ms <= at_ms]
            if started and _lasts(started[-1], at_ms) and self._is_counted(started[-1]):
                return started[-1]
        return None

    def all_in_force(self, at_ms: int) -> set[Rate]:
        found = (self.in_force(*place, at_ms) for place in self._rates)
        return {rate for rate in found if rate is not None}

    def _is_counted(self, rate: Rate) -> bool:
        return rate.kind != "price" or rate.unit == self.currency


def _start(rate: Rate) -> int:
    return rate.starts_ms


def _lasts(rate: Rate, at_ms: int) -> bool:
    return not rate.ends_ms or rate.ends_ms > at_ms
