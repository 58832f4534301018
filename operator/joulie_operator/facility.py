"""The building: how warm it is, what the racks draw, what cooling them draws."""

import asyncio
import math
import time

import aiohttp

from joulie_bus.errors import BusError
from joulie_bus.events import FacilityPolled
from joulie_bus.log import Log
from joulie_bus.logging import get_logger
from joulie_bus.producer import Producer
from joulie_bus.records import Message
from joulie_bus.refusals import Refusals
from joulie_bus.subjects import Subjects
from joulie_operator.edge import FacilitySettings
from joulie_operator.prometheus import NoAnswer, fetch, numbers, query

COLDEST_C, WARMEST_C = -60.0, 150.0  # beyond it is a broken sensor, not a room
log = get_logger("facility")


async def poll_facility(bus: Log, subjects: Subjects, settings: FacilitySettings) -> None:
    """For ever. What cannot be read is left out: the last value stays, and ages."""
    producer = Producer("operator-facility", subjects, time.time_ns)
    refused = Refusals("facility", "this reading is lost; the next one is published in its turn")
    async with aiohttp.ClientSession() as session:
        while True:
            polled = await look(session, settings)
            if polled is not None:
                await _told(bus, producer.stamp(polled), refused)
            await asyncio.sleep(settings.interval_s)


async def _told(bus: Log, message: Message, refused: Refusals) -> None:
    try:
        await bus.publish([message])
    except BusError as error:
        refused.saw(error)
    else:
        refused.ended()


async def look(session: aiohttp.ClientSession, settings: FacilitySettings) -> FacilityPolled | None:
    """None if there was nothing to read at all."""
    names = (settings.ambient, settings.it_power, settings.cooling_power)
    if settings.http:
        ambient, it, cooling = await _from_json(session, settings.http, names)
    else:
        readings = [_from_prometheus(session, settings.prometheus, name) for name in names]
        ambient, it, cooling = await asyncio.gather(*readings)
    is_sane = COLDEST_C < ambient < WARMEST_C
    polled = FacilityPolled(
        facility=settings.name,
        ambient_mdeg=round(ambient * 1000) if is_sane else None,
        it_mw=_milliwatts(it),
        cooling_mw=_milliwatts(cooling),
    )
    return polled if polled != FacilityPolled(facility=settings.name) else None


async def _from_json(
    session: aiohttp.ClientSession, url: str, names: tuple[str, str, str]
) -> list[float]:
    try:
        found = numbers(await fetch(session, url))
    except NoAnswer as error:
        log.warning("facility_silent", error=str(error), what="the last values stay, and age")
        return [math.nan] * len(names)
    return [found.get(name, math.nan) for name in names]


async def _from_prometheus(session: aiohttp.ClientSession, address: str, promql: str) -> float:
    """Of several series the first: a query that wants a sum says so."""
    if not promql:
        return math.nan
    try:
        found = await query(session, address, promql)
    except NoAnswer as error:
        log.warning("facility_silent", error=str(error), what="the last value stays, and ages")
        return math.nan
    return found[0].value if found else math.nan


def _milliwatts(watts: float) -> int | None:
    return round(watts * 1000) if math.isfinite(watts) and watts >= 0 else None
