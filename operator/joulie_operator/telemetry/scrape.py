"""Reads the measured power of nodes from Kepler and DCGM by Prometheus, by HTTP, or from BMCs."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping

import aiohttp

from joulie_bus.core.kube_names import SHOWN, is_subdomain
from joulie_bus.errors import BusError
from joulie_bus.events import TelemetrySampled
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.metering.reporter import Moment
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.subjects import Subjects
from joulie_operator.cluster_settings import PowerSettings
from joulie_operator.facts.metered_nodes import MOST_W, MeteredNodes
from joulie_operator.facts.readings import QUERIES, Reading, Series, node_of, whole_nodes
from joulie_operator.observe.fact_messages import report_left_out, to_messages
from joulie_operator.telemetry import prometheus
from joulie_operator.telemetry.bmc import Bmcs
from joulie_operator.telemetry.prometheus import NoReading, fetch, numbers, query
from joulie_projections.state.state import NodeState
from joulie_projections.view.view import View

AT_ONCE = 32  # concurrent requests in queries per node
# Fields of a response: the power of the whole node, or of its processors and its cards.
WHOLE = ("nodePowerWatts", "packagePowerWatts")
BOARD, CARDS = "cpu.packagePowerWatts", ("gpu.powerWattsTotal", "gpu.powerWatts")
log = get_logger("scrape")
Readings = dict[str, Reading]


async def scrape_power(
    bus: Log, subjects: Subjects, view: View, settings: PowerSettings, bmcs: Bmcs | None = None
) -> None:
    """Runs until cancelled. Nodes without a reading are left out, never reported as 0 W."""
    producer = Producer("operator-power", subjects, time.time_ns)
    refused = Refusals("power", "their counters go on; the newest ones are published with the next")
    nodes, is_lost = MeteredNodes(), False
    async with prometheus.session() as session, _closing(bmcs):
        while True:
            present = {
                name: node for name, node in view.cluster_state.nodes.items() if node.present
            }
            nodes.keep(present.keys())
            found = await bmcs.read(present, view.now_ns()) if bmcs is not None else {}
            if settings.address:  # it counts energy and cards, and replaces what a BMC shows
                found |= await read_power(session, present, settings)
            readings = dict(_within_bounds(found))
            at = Moment(time.monotonic(), time.time_ns())
            facts = list(nodes.samples(readings, at, are_due=is_lost))
            try:
                await bus.publish(to_messages(producer, facts))
            except BusError as error:
                refused.observe(error)
                is_lost = True
            else:
                refused.ended()
                is_lost = False
            await asyncio.sleep(settings.interval_s)


@contextlib.asynccontextmanager
async def _closing(bmcs: Bmcs | None) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if bmcs is not None:
            await bmcs.close()


async def read_power(
    session: aiohttp.ClientSession, nodes: Mapping[str, NodeState], settings: PowerSettings
) -> Readings:
    cards = {name: _cards(node) for name, node in nodes.items()}
    address, promql = settings.address, settings.promql
    if "{node}" in address:
        return await _each(nodes, lambda name: _from_http(session, address, name, cards[name]))
    if "{node}" in promql:
        return await _each(nodes, lambda name: _from_query(session, address, promql, name))
    queries = (promql,) if promql else QUERIES
    answers = await asyncio.gather(*(_series(session, address, each) for each in queries))
    if promql:
        return _one_series_each(answers[0], nodes)
    return whole_nodes(dict(zip(queries, answers, strict=True)), cards)


async def _series(session: aiohttp.ClientSession, address: str, promql: str) -> list[Series]:
    try:
        return await query(session, address, promql)
    except NoReading as error:
        log.warning("power_silent", error=str(error), what="nodes keep their last reading")
        return []


async def _each(
    nodes: Mapping[str, NodeState], ask: Callable[[str], Awaitable[Reading | None]]
) -> Readings:
    """Reads each node separately; failures are logged together."""
    gate, readings, silent = asyncio.Semaphore(AT_ONCE), Readings(), dict[str, str]()

    async def one(name: str) -> None:
        if not is_subdomain(name):  # the name becomes part of a URL or of a query
            silent[name] = f"{name[:SHOWN]!r} is not a valid node name: not queried"
            return
        async with gate:
            try:
                reading = await ask(name)
            except NoReading as error:
                silent[name] = str(error)
                return
        if reading is not None:
            readings[name] = reading

    await asyncio.gather(*(one(name) for name in nodes))
    if silent:
        example = next(iter(silent.values()))
        log.warning("power_silent", nodes=len(silent), for_example=example)
    return readings


async def _from_http(session: aiohttp.ClientSession, url: str, name: str, cards: int) -> Reading:
    found = numbers(await fetch(session, url.replace("{node}", name)))
    for path in WHOLE:
        if found.get(path, 0) > 0:
            return Reading(found[path], "http")
    on_cards = next((found[path] for path in CARDS if path in found), None)
    if not found.get(BOARD) or (cards and on_cards is None):
        raise NoReading(f"{url}: neither the power of {name} nor of all its parts")
    return Reading(found[BOARD] + (on_cards or 0.0), "http")


async def _from_query(
    session: aiohttp.ClientSession, address: str, promql: str, name: str
) -> Reading | None:
    found = await query(session, address, promql.replace("{node}", name))
    return _valid(found[0].value) if found else None


def _one_series_each(found: list[Series], nodes: Mapping[str, NodeState]) -> Readings:
    named = [(node_of(series.labels, nodes), _valid(series.value)) for series in found]
    return {name: reading for name, reading in named if name and reading is not None}


def _valid(watts: float) -> Reading | None:
    """None for NaN, infinite or zero watts: a running machine draws power."""
    return Reading(watts, "prometheus") if 0 < watts < float("inf") else None


def _cards(node: NodeState) -> int:
    """The number of cards that must report. Allocatable GPUs may be shares of fewer cards."""
    if node.hardware is not None:
        return node.hardware.gpu_count
    return 1 if node.gpus else 0


def _within_bounds(readings: Readings) -> Iterator[tuple[str, Reading]]:
    """Other readings come from broken exporters and are left out."""
    for name, reading in sorted(readings.items()):
        if 0 <= reading.watts <= MOST_W:
            yield name, reading
        else:
            report_left_out(
                TelemetrySampled.TYPE, name, f"{reading.watts:g} W by {reading.provider}"
            )
