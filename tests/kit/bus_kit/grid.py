"""Facts about the grid."""

from bus_kit.clock import NOON, SECOND
from joulie_bus.events import GridIntensity, GridPriced
from joulie_bus.events.grid import EVERY_ZONE

STARTS = NOON - NOON % (300 * SECOND)  # the start of the ledger's five minutes


def price(
    per_kwh: float,
    *,
    zone: str = EVERY_ZONE,
    starts: int = STARTS,
    ends: int = 0,
    currency: str = "EUR",
) -> GridPriced:
    return GridPriced(
        zone=zone,
        starts=starts,
        ends=ends,
        nano_per_kwh=round(per_kwh * 1e9),
        currency=currency,
        source="test",
    )


def intensity(
    g_per_kwh: float,
    *,
    zone: str = EVERY_ZONE,
    starts: int = STARTS,
    ends: int = 0,
    estimated: bool = False,
) -> GridIntensity:
    return GridIntensity(
        zone=zone,
        starts=starts,
        ends=ends,
        mg_per_kwh=round(g_per_kwh * 1000),
        source="test",
        estimated=estimated,
    )
