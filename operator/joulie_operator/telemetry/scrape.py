"""Measured power of the nodes, from where clusters measure it already: Kepler, DCGM, or HTTP."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping

import aiohttp

from joulie_bus.errors import BusError
from joulie_bus.events import PowerSource, TelemetrySampled
from joulie_bus.events.bounds import MOST_MW
from joulie_bus.events.kube_names import SHOWN, is_subdomain
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.log import Log
from joulie_bus.streams.producer import Producer
from joulie_bus.streams.refusals import Refusals
from joulie_bus.streams.subjects import Subjects
from joulie_operator.cluster_settings import PowerSettings
from joulie_operator.observe.fact_messages import left_out, stamped
from joulie_operator.telemetry.prometheus import NoAnswer, fetch, numbers, query
from joulie_operator.telemetry.readings import QUERIES, Reading, Series, node_of, whole_nodes
from joulie_projections.state.state import NodeState
from joulie_projections.view.view import View

AT_ONCE = 32  # nodes asked one by one
KEPLER: PowerSource = "kepler"  # the log's word for "measured"; `provider` says by whom
# What an answer may hold: the whole node, or its processors and its cards.
WHOLE = ("nodePowerWatts", "packagePowerWatts")
BOARD, CARDS = "cpu.packagePowerWatts", ("gpu.powerWattsTotal", "gpu.powerWatts")
MOST_W = MOST_MW / 1000
log = get_logger("scrape")
Readings = dict[str, Reading]


async def scrape_power(bus: Log, subjects: Subjects, view: View, settings: PowerSettings) -> None:
    """For ever. Who cannot be read is left out, and never reads 0 W."""
    producer = Producer("operator-power", subjects, time.time_ns)
    refused = Refusals("power", "these readings are lost; the next ones are published in turn")
    async with aiohttp.ClientSession() as session:
        while True:
            nodes = {name: node for name, node in view.cluster_state.nodes.items() if node.present}
            readings = await read_power(session, nodes, settings)
            facts = list(_samples(readings))
            try:
                await bus.publish(stamped(producer, facts))
            except BusError as error:
                refused.saw(error)
            else:
                refused.ended()
            await asyncio.sleep(settings.interval_s)


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
    answers = await asyncio.gather(*(_asked(session, address, each) for each in queries))
    if promql:
        return _one_series_each(answers[0], nodes)
    return whole_nodes(dict(zip(queries, answers, strict=True)), cards)


async def _asked(session: aiohttp.ClientSession, address: str, promql: str) -> list[Series]:
    try:
        return await query(session, address, promql)
    except NoAnswer as error:
        log.warning("power_silent", error=str(error), what="nodes keep their last reading")
        return []


async def _each(
    nodes: Mapping[str, NodeState], ask: Callable[[str], Awaitable[Reading | None]]
) -> Readings:
    """Each node by itself; one that does not answer is told of together with the others."""
    gate, readings, silent = asyncio.Semaphore(AT_ONCE), Readings(), dict[str, str]()

    async def one(name: str) -> None:
        if not is_subdomain(name):  # it would be a part of a URL, or of a query
            silent[name] = f"{name[:SHOWN]!r} is not a name that a node can have: not asked for"
            return
        async with gate:
            try:
                reading = await ask(name)
            except NoAnswer as error:
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
        raise NoAnswer(f"{url}: neither the whole of {name} nor all its parts")
    return Reading(found[BOARD] + (on_cards or 0.0), "http")


async def _from_query(
    session: aiohttp.ClientSession, address: str, promql: str, name: str
) -> Reading | None:
    found = await query(session, address, promql.replace("{node}", name))
    return _fine(found[0].value) if found else None


def _one_series_each(found: list[Series], nodes: Mapping[str, NodeState]) -> Readings:
    named = [(node_of(series.labels, nodes), _fine(series.value)) for series in found]
    return {name: reading for name, reading in named if name and reading is not None}


def _fine(watts: float) -> Reading | None:
    """Neither NaN nor infinite; a machine that answers draws more than nothing."""
    return Reading(watts, "prometheus") if 0 < watts < float("inf") else None


def _cards(node: NodeState) -> int:
    """How many must show their power. What Kubernetes allocates may be shares of fewer cards."""
    if node.hardware is not None:
        return node.hardware.gpu_count
    return 1 if node.gpus else 0


def _samples(readings: Readings) -> Iterator[TelemetrySampled]:
    """Without those that no machine draws: a broken exporter says nothing about its node."""
    for name, reading in sorted(readings.items()):
        if 0 <= reading.watts <= MOST_W:
            yield _sampled(name, reading)
        else:
            left_out(TelemetrySampled.TYPE, name, f"{reading.watts:g} W by {reading.provider}")


def _sampled(name: str, reading: Reading) -> TelemetrySampled:
    return TelemetrySampled(
        node=name,
        power_mw=round(reading.watts * 1000),
        source=KEPLER,
        provider=reading.provider,
    )
