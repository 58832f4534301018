"""Polls the facility: ambient temperature, IT power and cooling power."""

import asyncio
import math
import time
from collections.abc import Sequence

import aiohttp

from joulie_bus.errors import BusError
from joulie_bus.events import FacilityPolled
from joulie_bus.events.bounds import MOST_FACILITY_MW
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Subjects
from joulie_operator.cluster_settings import FacilitySettings
from joulie_operator.observe.fact_messages import report_left_out, to_messages
from joulie_operator.telemetry import prometheus
from joulie_operator.telemetry.prometheus import NoReading, fetch, numbers, query
from joulie_projections.twin.facility import HIGHEST_PUE, is_plausible, pue_of

COLDEST_C, WARMEST_C = -60.0, 150.0  # values beyond come from broken sensors
MOST_W = MOST_FACILITY_MW / 1000
log = get_logger("facility")


async def poll_facility(bus: Log, subjects: Subjects, settings: FacilitySettings) -> None:
    """Runs until cancelled. A value that cannot be read is left out: the last one stays valid."""
    producer = Producer("operator-facility", subjects, time.time_ns)
    refused = Refusals("facility", "this reading is lost; the next one is published on schedule")
    async with prometheus.session() as session:
        while True:
            polled = await read_facility(session, settings)
            if polled is not None:
                await _publish(bus, to_messages(producer, [polled]), refused)
            await asyncio.sleep(settings.interval_s)


async def _publish(bus: Log, messages: Sequence[Message], refused: Refusals) -> None:
    try:
        await bus.publish(messages)
    except BusError as error:
        refused.observe(error)
    else:
        refused.ended()


async def read_facility(
    session: aiohttp.ClientSession, settings: FacilitySettings
) -> FacilityPolled | None:
    """None if no value could be read."""
    names = (settings.ambient, settings.it_power, settings.cooling_power)
    if settings.http:
        ambient, it, cooling = await _from_json(session, settings.http, names)
    else:
        readings = [_from_prometheus(session, settings.prometheus, name) for name in names]
        ambient, it, cooling = await asyncio.gather(*readings)
    it_mw, cooling_mw = _plausible(
        settings.name, _milliwatts("it power", it), _milliwatts("cooling power", cooling)
    )
    polled = FacilityPolled(
        facility=settings.name,
        ambient_mdeg=_ambient_mdeg(settings.name, ambient),
        it_mw=it_mw,
        cooling_mw=cooling_mw,
    )
    return polled if polled != FacilityPolled(facility=settings.name) else None


def _ambient_mdeg(facility: str, ambient: float) -> int | None:
    if COLDEST_C < ambient < WARMEST_C:
        return round(ambient * 1000)
    if math.isfinite(ambient):
        why = f"the ambient temperature is {ambient:g} C, outside of {COLDEST_C:g} to {WARMEST_C:g}"
        _refuse(facility, why)
    return None


def _plausible(
    facility: str, it_mw: int | None, cooling_mw: int | None
) -> tuple[int | None, int | None]:
    """Both values or neither: it is unknown which of the two meters is wrong."""
    if it_mw is None or cooling_mw is None or is_plausible(it_mw, cooling_mw):
        return it_mw, cooling_mw
    pue = pue_of(it_mw, cooling_mw)
    powers = f"{it_mw / 1000:,.12g} W of IT and {cooling_mw / 1000:,.12g} W of cooling"
    why = f"{powers} give a PUE of {pue:g}, above {HIGHEST_PUE:g}: check the two queries"
    _refuse(facility, why)
    return None, None


def _refuse(facility: str, why: str) -> None:
    log.warning(
        "facility_refused", facility=facility, why=why, what="the last good reading stays valid"
    )


async def _from_json(
    session: aiohttp.ClientSession, url: str, names: tuple[str, str, str]
) -> list[float]:
    try:
        found = numbers(await fetch(session, url))
    except NoReading as error:
        log.warning(
            "facility_silent", error=str(error), what="the last values stay valid, with their age"
        )
        return [math.nan] * len(names)
    return [found.get(name, math.nan) for name in names]


async def _from_prometheus(session: aiohttp.ClientSession, address: str, promql: str) -> float:
    """The value of the first series; queries aggregate where they need to."""
    if not promql:
        return math.nan
    try:
        found = await query(session, address, promql)
    except NoReading as error:
        log.warning(
            "facility_silent", error=str(error), what="the last value stays valid, with its age"
        )
        return math.nan
    return found[0].value if found else math.nan


def _milliwatts(what: str, watts: float) -> int | None:
    """None for an impossible value: the last one stays valid."""
    if 0 <= watts <= MOST_W:
        return round(watts * 1000)
    if not math.isnan(watts):  # NaN: no reading, which is logged already
        report_left_out(FacilityPolled.TYPE, what, f"{watts:,.12g} W")
    return None
