"""The operator with full streams: it continues, and reports what is lost."""

import asyncio
import contextlib
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp.web
import pytest

from bus_kit import CLUSTER, full, node_seen, producer, refusals, until
from http_server import serving
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import metrics
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_operator.cluster_settings import FacilitySettings, PowerSettings
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe import resource_watcher
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_operator.service import Operator
from joulie_operator.settings import OperatorSettings
from joulie_operator.telemetry.facility import poll_facility
from joulie_operator.telemetry.scrape import scrape_power
from joulie_projections.view.view import View
from kube_builders import joulie_server, node, pod

pytestmark = pytest.mark.anyio


async def goes_on_after_refusals(task: "asyncio.Task[None]", what: str) -> None:
    before = refusals(what)
    await until(lambda: refusals(what) >= before + 2)
    assert not task.done()


async def test_facts_that_a_full_stream_refused_are_listed_and_published_again(
    bus: JetStreamLog,
    connection: Connection,
    view: View,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource_watcher, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(resource_watcher, "LONGEST_PAUSE_S", 0.2)
    server = joulie_server()
    server.put("nodes", node("n1", gpus=8))
    server.put("pods", pod("p1"), "team")
    async with (
        Api.of(server.kubeconfig(tmp_path)) as api,
        server.listening(),
        contextlib.AsyncExitStack() as stack,
    ):
        async with full(connection, Stream.OBS):
            watching = watch_cluster(api, bus, CLUSTER, view, ObservedCluster.empty())
            watch = await stack.enter_async_context(background(watching, "watch"))
            await goes_on_after_refusals(watch, "facts")
            assert not view.cluster_state.nodes
        await until(
            lambda: len(view.cluster_state.nodes) == 1 and len(view.cluster_state.pods) == 1
        )


async def test_plans_stop_with_a_reason_and_resume_once_there_is_room(
    bus: JetStreamLog, connection: Connection, view: View
) -> None:
    says = producer()
    await bus.publish([says.stamp(node_seen(name)) for name in ("n1", "n2")])
    await until(lambda: len(view.cluster_state.nodes) == 2)
    settings = OperatorSettings(caps_settle_s=0)
    operator = Operator(bus, CLUSTER, view, settings)
    async with contextlib.AsyncExitStack() as stack:
        async with full(connection, Stream.PLAN):
            task = await stack.enter_async_context(background(operator.run(), "operator"))
            await goes_on_after_refusals(task, "plans")
            await until(lambda: metrics.PLANS_STOPPED.labels(reason="broker")._value.get() == 1)
        await until(lambda: all(node.profile for node in view.cluster_state.nodes.values()))
        await until(lambda: metrics.PLANS_STOPPED.labels(reason="broker")._value.get() == 0)


def meter() -> AbstractAsyncContextManager[str]:
    """A server that responds to every query with one number."""

    async def answer(_: aiohttp.web.Request) -> aiohttp.web.Response:
        found = {"nodePowerWatts": 200, "ambient": 21.5}
        return aiohttp.web.json_response(found)

    return serving(answer)


async def test_the_scraper_continues_and_the_next_reading_is_stored(
    bus: JetStreamLog, connection: Connection, view: View
) -> None:
    await bus.publish([producer().stamp(node_seen("n1"))])
    await until(lambda: "n1" in view.cluster_state.nodes)
    async with meter() as url:
        values = {"NODE_POWER_ADDRESS": f"{url}/{{node}}"}
        settings = Source.of(**values, NODE_POWER_INTERVAL="50ms").load(PowerSettings)
        scraping = scrape_power(bus, CLUSTER, view, settings)
        async with contextlib.AsyncExitStack() as stack:
            async with full(connection, Stream.TEL):
                task = await stack.enter_async_context(background(scraping, "scrape"))
                await goes_on_after_refusals(task, "power")
            await until(lambda: bool(view.cluster_state.nodes["n1"].samples))


async def test_the_facility_poller_continues_and_the_next_reading_is_stored(
    bus: JetStreamLog, connection: Connection, view: View
) -> None:
    async with meter() as url:
        values = {"FACILITY_HTTP_ENDPOINT": url, "FACILITY_AMBIENT_TEMP_METRIC": "ambient"}
        settings = Source.of(**values, FACILITY_POLL_INTERVAL="50ms").load(FacilitySettings)
        polling = poll_facility(bus, CLUSTER, settings)
        async with contextlib.AsyncExitStack() as stack:
            async with full(connection, Stream.OBS, Stream.TEL):
                task = await stack.enter_async_context(background(polling, "facility"))
                await goes_on_after_refusals(task, "facility")
            await until(lambda: bool(view.cluster_state.facilities))
