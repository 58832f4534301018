import asyncio
import contextlib
import functools
import itertools
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from bus_kit import CLUSTER, hardware, node_seen, producer, until
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from http_server import serving
from joulie_bus.events import FacilityPolled, TelemetrySampled, codec
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.ports import free_port
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_operator.cluster_settings import FacilitySettings, PowerSettings
from joulie_operator.facts.readings import Reading
from joulie_operator.telemetry.facility import poll_facility, read_facility
from joulie_operator.telemetry.scrape import read_power, scrape_power
from joulie_projections.state.state import NodeState
from joulie_projections.view.view import View

pytestmark = pytest.mark.anyio
NODES = {"n1": NodeState(ordinal=0, at=0, present=True), "n2": NodeState(ordinal=1, at=0)}


class Meters:
    """An HTTP server with configured responses to queries and paths; else 404."""

    def __init__(self) -> None:
        self._port = free_port()  # the same after an outage
        self.url = f"http://127.0.0.1:{self._port}"
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator["Meters", None]:
        async with serving(self._answer, self._port):
            yield self

    async def _answer(self, request: web.Request) -> web.Response:
        asked = request.query.get("query", request.path)
        self.asked.append(asked)
        if asked not in self.answers and "query" not in request.query:
            return web.Response(status=404, text="nobody here")
        answer = self.answers.get(asked, vector())
        if callable(answer):
            answer = answer()
        body = answer if isinstance(answer, str) else json.dumps(answer)
        return web.Response(text=body, content_type="application/json")


def vector(*series: tuple[dict[str, str], str]) -> dict[str, Any]:
    result = [{"metric": labels, "value": [1.0, value]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def scalar(value: str) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "scalar", "result": [1.0, value]}}


@pytest.fixture
async def meters() -> AsyncGenerator[Meters, None]:
    async with Meters().listening() as running:
        yield running


def power(meters: Meters, **values: str) -> PowerSettings:
    return Source.of(**{"NODE_POWER_ADDRESS": meters.url, **values}).load(PowerSettings)


async def read(settings: PowerSettings) -> dict[str, Reading]:
    async with aiohttp.ClientSession() as session:
        return await read_power(session, NODES, settings)


async def test_kepler_is_read_by_the_names_of_its_metrics(meters: Meters) -> None:
    package = {"node_name": "n1", "zone": "package"}
    meters.answers["kepler_node_cpu_watts"] = vector((package, "212.5"))

    assert await read(power(meters)) == {"n1": Reading(212.5, "kepler package")}


async def test_a_custom_query_gives_one_series_per_node(meters: Meters) -> None:
    meters.answers["my_watts"] = vector(
        ({"node": "n1"}, "300"), ({"node": "n2"}, "NaN"), ({"node": "x"}, "9")
    )

    found = await read(power(meters, NODE_POWER_PROMETHEUS_QUERY="my_watts"))

    assert found == {"n1": Reading(300.0, "prometheus")}


async def test_a_query_with_a_placeholder_runs_once_per_node(meters: Meters) -> None:
    meters.answers['watts{node="n1"}'] = vector(({}, "300"))
    meters.answers['watts{node="n2"}'] = scalar("0")
    promql = 'watts{node="{node}"}'

    found = await read(power(meters, NODE_POWER_PROMETHEUS_QUERY=promql))

    assert found == {"n1": Reading(300.0, "prometheus")}


HOSTILE = ["../../api/v1/admin", 'n1"} or secret{x="', "n1?x=", "N1", ""]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("path", ["", "/telemetry/{node}"])
async def test_an_invalid_node_name_is_not_part_of_a_request(
    meters: Meters, name: str, path: str
) -> None:
    """Node names come from events, and an agent may publish any name."""
    settings = {
        "NODE_POWER_ADDRESS": f"{meters.url}{path}",
        "NODE_POWER_PROMETHEUS_QUERY": 'watts{node="{node}"}',
    }
    async with aiohttp.ClientSession() as session:
        found = await read_power(session, {name: NODES["n1"]}, power(meters, **settings))

    assert (found, meters.asked) == ({}, [])


@pytest.mark.parametrize(
    ("said", "watts"),
    [
        ({"packagePowerWatts": 245.5}, 245.5),
        ({"cpu": {"packagePowerWatts": 245.5}}, 245.5),
        ({"cpu": {"packagePowerWatts": 200}, "gpu": {"powerWattsTotal": 300}}, 500),
        ({"packagePowerWatts": 500, "gpu": {"powerWattsTotal": 300}}, 500),
        ({"packagePowerWatts": 0}, None),
        ({"cpu": {"packagePowerWatts": 0}}, None),
        ({"packagePowerWatts": "245"}, None),
        ("not json", None),
    ],
)
async def test_an_http_endpoint_is_read_in_the_format_of_the_old_simulator(
    meters: Meters, said: Any, watts: float | None
) -> None:
    meters.answers["/telemetry/n1"] = said
    url = f"{meters.url}/telemetry/{{node}}"

    found = await read(power(meters, NODE_POWER_ADDRESS=url))

    assert found == ({} if watts is None else {"n1": Reading(watts, "http")})


@pytest.mark.parametrize(
    "answer", ["<html>", '{"status":"error","error":"bad"}', '{"status":"success","data":{}}']
)
async def test_an_unusable_response_gives_no_reading(meters: Meters, answer: str) -> None:
    meters.answers["kepler_node_cpu_watts"] = answer

    assert await read(power(meters)) == {}


async def test_readings_become_telemetry_and_continue_after_an_outage(
    bus: JetStreamLog, view: View
) -> None:
    meters, says = Meters(), producer()
    await bus.publish([says.stamp(node_seen("n1")), says.stamp(hardware("n1"))])
    await until(lambda: "n1" in view.cluster_state.nodes)
    meters.answers["kepler_node_cpu_watts"] = vector(({"node_name": "n1", "zone": "psys"}, "212.5"))
    settings = power(meters, NODE_POWER_INTERVAL="50ms")
    async with background(scrape_power(bus, CLUSTER, view, settings), "scrape"):
        async with meters.listening():
            await until(lambda: view.cluster_state.nodes["n1"].source == "kepler")
        async with meters.listening():
            count = len(meters.asked)
            await until(lambda: len(meters.asked) > count + 20)

    found = view.cluster_state.nodes["n1"]
    assert (found.samples[-1].power_mw, found.provider) == (212_500, "kepler psys")


async def readings_in(log: MemoryLog) -> list[TelemetrySampled]:
    newest = (await log.state(Stream.TEL)).last
    found = [await log.message(Stream.TEL, number + 1) for number in range(newest)]
    events = [codec.decoded(record.data, "the test") for record in found if record]
    return [event for event in events if isinstance(event, TelemetrySampled)]


async def test_steady_power_is_polled_often_and_published_seldom_with_the_joules_of_kepler(
    bus: JetStreamLog, view: View, meters: Meters
) -> None:
    says, joules = producer(), itertools.count(10**9, 7)
    log = MemoryLog(MemoryBroker(CLUSTER, time.time_ns))
    await bus.publish([says.stamp(node_seen("n1"))])
    await until(lambda: "n1" in view.cluster_state.nodes)
    of_node = {"node_name": "n1", "zone": "package"}
    meters.answers["kepler_node_cpu_watts"] = vector((of_node, "200"))
    meters.answers["kepler_node_cpu_joules_total"] = lambda: vector((of_node, f"{next(joules)}"))
    settings = power(meters, NODE_POWER_INTERVAL="10ms")
    polls = functools.partial(meters.asked.count, "kepler_node_cpu_joules_total")
    async with background(scrape_power(log, CLUSTER, view, settings), "scrape"):
        await until(lambda: polls() > 40)
        assert len(await readings_in(log)) < 10
        before = polls()
        meters.answers["kepler_node_cpu_watts"] = vector((of_node, "300"))
        while (last := (await readings_in(log))[-1]).power_mw == 200_000:
            await asyncio.sleep(0.01)

    first = (await readings_in(log))[0]
    assert last.counted_from == first.counted_from > 0
    # Each poll is a rise by seven joules; until the second rise, and for the first, power counts.
    assert (before - 3) * 7e6 < last.energy_uj - first.energy_uj < polls() * 7e6


@pytest.mark.parametrize("watts", ["1e20", "1e306", "1.1e9"])
async def test_an_impossible_reading_is_left_out_and_the_loop_continues(
    bus: JetStreamLog, view: View, watts: str
) -> None:
    says = producer()
    await bus.publish([says.stamp(node_seen("n1")), says.stamp(node_seen("n2"))])
    await until(lambda: len(view.cluster_state.nodes) == 2)
    meters = Meters()
    meters.answers["watts"] = vector(({"node": "n1"}, watts), ({"node": "n2"}, "200"))
    settings = power(meters, NODE_POWER_PROMETHEUS_QUERY="watts", NODE_POWER_INTERVAL="50ms")
    async with (
        meters.listening(),
        background(scrape_power(bus, CLUSTER, view, settings), "scrape") as task,
    ):
        await until(lambda: view.cluster_state.nodes["n2"].source == "kepler")
        count = len(meters.asked)
        await until(lambda: len(meters.asked) > count + 3)
        assert not task.done()

    assert view.cluster_state.nodes["n1"].samples == ()


def building(meters: Meters, **values: str) -> FacilitySettings:
    settings = {"FACILITY_PROMETHEUS_ADDRESS": meters.url, "FACILITY_POLL_INTERVAL": "50ms"}
    return Source.of(**{**settings, **values}).load(FacilitySettings)


async def looked(settings: FacilitySettings) -> FacilityPolled | None:
    async with aiohttp.ClientSession() as session:
        return await read_facility(session, settings)


async def test_the_facility_is_read_from_prometheus(meters: Meters) -> None:
    meters.answers["datacenter_ambient_temperature_celsius"] = vector(({}, "24.5"))
    meters.answers["datacenter_total_it_power_watts"] = scalar("30000")
    meters.answers["datacenter_cooling_power_watts"] = vector(({}, "NaN"))

    assert await looked(building(meters)) == FacilityPolled(
        facility="facility", ambient_mdeg=24_500, it_mw=30_000_000
    )


async def test_the_facility_is_read_from_json(meters: Meters) -> None:
    meters.answers["/hall"] = {"air": {"celsius": 24.5}, "it": 30000, "cooling": True}
    names = {"AMBIENT_TEMP": "air.celsius", "IT_POWER": "it", "COOLING_POWER": "cooling"}
    settings = {f"FACILITY_{name}_METRIC": path for name, path in names.items()}

    found = await looked(building(meters, FACILITY_HTTP_ENDPOINT=f"{meters.url}/hall", **settings))

    assert found == FacilityPolled(facility="facility", ambient_mdeg=24_500, it_mw=30_000_000)


@pytest.mark.parametrize("celsius", ["-300", "4000", "+Inf"])
async def test_an_impossible_temperature_is_refused(meters: Meters, celsius: str) -> None:
    meters.answers["datacenter_ambient_temperature_celsius"] = vector(({}, celsius))

    assert await looked(building(meters)) is None


async def test_an_impossible_pue_is_refused_with_a_reason(
    meters: Meters,
) -> None:
    meters.answers["datacenter_ambient_temperature_celsius"] = vector(({}, "24.5"))
    meters.answers["datacenter_total_it_power_watts"] = scalar("1")
    meters.answers["datacenter_cooling_power_watts"] = scalar("3000")

    with capture_logs() as lines:
        found = await looked(building(meters))

    assert found == FacilityPolled(facility="facility", ambient_mdeg=24_500)
    [line] = lines
    assert line["why"].startswith("1 W of IT and 3,000 W of cooling give a PUE of 3001, above 3")


@pytest.mark.parametrize("watts", ["1e17", "+Inf", "-1"])
async def test_an_impossible_power_is_left_out(meters: Meters, watts: str) -> None:
    meters.answers["datacenter_total_it_power_watts"] = scalar(watts)
    meters.answers["datacenter_cooling_power_watts"] = scalar("9000")

    assert await looked(building(meters)) == FacilityPolled(
        facility="facility", cooling_mw=9_000_000
    )


async def test_a_facility_without_readings_keeps_its_last_values(
    bus: JetStreamLog, view: View
) -> None:
    meters = Meters()
    meters.answers["datacenter_total_it_power_watts"] = scalar("30000")
    async with background(poll_facility(bus, CLUSTER, building(meters)), "facility"):
        async with meters.listening():
            await until(lambda: "facility" in view.cluster_state.facilities)
        position = view.position
        async with meters.listening():
            await until(lambda: view.position > position)

    reading = view.cluster_state.facilities["facility"].it_mw
    assert reading is not None
    assert reading.value == 30_000_000
