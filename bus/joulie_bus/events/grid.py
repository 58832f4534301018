"""Facts about the electricity grid: what energy costs, and the carbon that it stands for."""

from typing import Annotated, ClassVar

import msgspec

from joulie_bus.events.base import Observation
from joulie_bus.events.bounds import Name, Nanoseconds, Word

MOST_NANO_PER_KWH = 10**12  # a thousand of the currency per kWh
MOST_MG_PER_KWH = 10**7  # ten kilograms per kWh
EVERY_ZONE = "*"
# Prices may be negative.
NanoPerKwh = Annotated[int, msgspec.Meta(ge=-MOST_NANO_PER_KWH, le=MOST_NANO_PER_KWH)]
MilligramsPerKwh = Annotated[int, msgspec.Meta(ge=0, le=MOST_MG_PER_KWH)]
Currency = Annotated[str, msgspec.Meta(min_length=1, max_length=8)]


class GridPriced(Observation, frozen=True, kw_only=True):
    """The price of energy in one zone from `starts` on, until a later price or `ends`."""

    TYPE: ClassVar[str] = "grid.price"
    TOKEN: ClassVar[str] = "grid"
    zone: Name  # of the nodes, as their label says; "*": of nodes whose zone has no price
    starts: Nanoseconds
    nano_per_kwh: NanoPerKwh  # billionths of the currency
    currency: Currency
    ends: Nanoseconds = 0  # 0: until a later price starts
    source: Word = ""

    @property
    def key(self) -> str:
        return self.zone


class GridIntensity(Observation, frozen=True, kw_only=True):
    """The carbon intensity of energy in one zone from `starts` on, until a later one or `ends`."""

    TYPE: ClassVar[str] = "grid.intensity"
    TOKEN: ClassVar[str] = "grid"
    zone: Name
    starts: Nanoseconds
    mg_per_kwh: MilligramsPerKwh  # of CO2 equivalents
    ends: Nanoseconds = 0
    source: Word = ""
    estimated: bool = False  # the source has estimated it

    @property
    def key(self) -> str:
        return self.zone
