"""The power of whole chassis: stand-ins answer as BMCs of two vendors do, and as hostile ones."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace
from structlog.testing import capture_logs

from authority import Authority
from bus_kit import CLUSTER, node_seen, producer, until
from http_server import endless, serving
from joulie_bus.events import TelemetrySampled, codec
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_operator.cluster_settings import PowerSettings
from joulie_operator.controllers.controller_file import read_controllers
from joulie_operator.facts.chassis_power import IPMI, REDFISH, of_dcmi, watts
from joulie_operator.telemetry import bmc as module
from joulie_operator.telemetry.bmc import Bmcs
from joulie_operator.telemetry.bmc_connections import MOST_KEPT, OWN_NS, Connections
from joulie_operator.telemetry.scrape import scrape_power
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.view.view import View

pytestmark = pytest.mark.anyio
NODE = NodeState(ordinal=0, at=0, present=True)
ROOT = "/redfish/v1/Chassis"
Documents = dict[str, Any]


def listed(*paths: str) -> Documents:
    return {"Members": [{"@odata.id": path} for path in paths]}


# A service of iDRAC's kind: PowerControl, and an enclosure of disks without a meter.
FIRST: Documents = {
    ROOT: listed(f"{ROOT}/System.Embedded.1", f"{ROOT}/Enclosure.Internal.0-1"),
    f"{ROOT}/System.Embedded.1": {
        "Power": {"@odata.id": f"{ROOT}/System.Embedded.1/Power"},
    },
    f"{ROOT}/Enclosure.Internal.0-1": {"ChassisType": "StorageEnclosure"},
    f"{ROOT}/System.Embedded.1/Power": {
        "PowerControl": [
            {"MemberId": "PowerControl", "PowerConsumedWatts": 412, "PowerCapacityWatts": 1100}
        ]
    },
}
# A service of OpenBMC's kind: EnvironmentMetrics, whose reading may be that of a sensor.
SECOND: Documents = {
    ROOT: listed(f"{ROOT}/1"),
    f"{ROOT}/1": {
        "EnvironmentMetrics": {"@odata.id": f"{ROOT}/1/EnvironmentMetrics"},
        "Sensors": {"@odata.id": f"{ROOT}/1/Sensors"},
    },
    f"{ROOT}/1/EnvironmentMetrics": {
        "PowerWatts": {"DataSourceUri": f"{ROOT}/1/Sensors/total_power", "Reading": 388.5}
    },
    f"{ROOT}/1/Sensors/total_power": {"Reading": 390.25, "ReadingUnits": "W"},
}
BY_SENSOR: Documents = {
    **SECOND,
    f"{ROOT}/1/EnvironmentMetrics": {
        "PowerWatts": {"DataSourceUri": f"{ROOT}/1/Sensors/total_power", "Reading": None}
    },
}


class Service:
    """A BMC with TLS and basic authentication."""

    def __init__(self, folder: Path) -> None:
        self.documents: Documents = {}
        self.folder, self.url, self.asked = folder, "", list[str]()
        self.made, self.ports = list[Bmcs](), list[int]()  # the client's, of each question
        self.authority = Authority.made(folder, "authority")
        for name, text in (("user", "reader"), ("password", "s3cret")):
            (folder / name).write_text(f"{text}\n")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        assert request.transport is not None
        self.ports.append(request.transport.get_extra_info("peername")[1])
        if request.headers.get("Authorization") != "Basic cmVhZGVyOnMzY3JldA==":
            return web.Response(status=401)
        found = self.documents.get(request.path)
        if callable(found):
            return await found(request)  # type: ignore[no-any-return]
        if found is None:
            return web.Response(status=404)
        text = found if isinstance(found, str) else json.dumps(found)
        return web.Response(text=text, content_type="application/json")

    def bmcs(self, more: str = "", address: str = "", kind: str = "redfish") -> Bmcs:
        file = self.folder / "controllers.toml"
        authority = f'ca_file = "{self.authority.file}"' if kind == "redfish" else ""
        file.write_text(
            f'''[[controller]]
kind = "{kind}"
address = "{address or self.url}"
user_file = "{self.folder}/user"
password_file = "{self.folder}/password"
{authority}
{more}
'''
        )
        self.made.append(Bmcs(read_controllers(file)))
        return self.made[-1]

    async def why(self, bmcs: Bmcs, nodes: dict[str, NodeState] | None = None) -> str:
        with capture_logs() as logs:
            assert await bmcs.read(nodes or {"n1": NODE}, 0) == {}
        return str(next(each["why"] for each in logs if each["event"] == "power_not_available"))


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[Service, None]:
    made = Service(tmp_path)
    cert, key = made.authority.issue(tmp_path, "bmc")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    async with serving(made.answer, tls=tls) as url:
        made.url = url
        yield made
        for bmcs in made.made:
            await bmcs.close()


@pytest.mark.parametrize(
    ("documents", "expected"),
    [(FIRST, 412), (SECOND, 388.5), (BY_SENSOR, 390.25)],
    ids=["PowerControl", "EnvironmentMetrics", "its sensor"],
)
async def test_the_power_of_a_chassis_is_read_as_two_vendors_report_it(
    service: Service, documents: Documents, expected: float
) -> None:
    service.documents = documents
    found = await service.bmcs().read({"n1": NODE}, 0)

    assert (found["n1"].watts, found["n1"].provider) == (expected, REDFISH)


async def test_of_several_metered_chassis_the_file_names_the_one_of_the_node(
    service: Service,
) -> None:
    two = {path.replace("/1", "/2"): document for path, document in BY_SENSOR.items()}
    text = json.dumps(two).replace(f"{ROOT}/1", f"{ROOT}/2").replace("390.25", "100")
    service.documents = {**json.loads(text), **SECOND, ROOT: listed(f"{ROOT}/1", f"{ROOT}/2")}
    named = service.bmcs('chassis = "{bmc.node-restriction.kubernetes.io/slot}"')
    nodes = {
        name: NodeState(
            ordinal=0, at=0, present=True, labels={"bmc.node-restriction.kubernetes.io/slot": slot}
        )
        for name, slot in (("a", "1"), ("b", "2"))
    }

    assert "name one (chassis)" in await service.why(service.bmcs())
    assert {name: each.watts for name, each in (await named.read(nodes, 0)).items()} == {
        "a": 388.5,
        "b": 100,
    }
    assert "BMC of several nodes" in await service.why(service.bmcs(), nodes)
    assert "no label bmc.node-restriction.kubernetes.io/slot" in await service.why(
        named.__class__(named._entries)
    )


async def elsewhere(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("https://127.0.0.1:1/redfish/v1/Chassis")


async def never(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


HOSTILE: dict[str, tuple[Any, str]] = {
    "a redirect": (elsewhere, "answered 302"),
    "a body without end": (endless, "more than 1048576 bytes"),
    "silence": (never, "no answer in 1 s"),
    "half a document": ("{", "no JSON object"),
    "a list": ("[]", "no JSON object"),
    "a deep document": ("[" * 100_000, "no JSON object"),
    "an empty document": ({}, "of 0 chassis"),
    "members of another type": ({"Members": {"a": 1}}, "of 0 chassis"),
    "another host": (listed("https://other.example/redfish/v1/Chassis/1"), "of 0 chassis"),
    "a path upwards": (listed(f"{ROOT}/../../secrets"), "of 0 chassis"),
    "a chassis that is gone": (listed(f"{ROOT}/gone"), "answered 404"),
}


@pytest.mark.parametrize(("document", "why"), HOSTILE.values(), ids=HOSTILE)
async def test_a_bmc_that_answers_anything_else_has_no_reading_and_the_reason_is_told(
    service: Service, document: Any, why: str
) -> None:
    service.documents = {ROOT: document}
    said = await service.why(service.bmcs("timeout_s = 1.0"))

    assert why in said
    assert "s3cret" not in said


@pytest.mark.parametrize(
    "wrong", ["412", True, None, 0, -3, [412], {"a": 1}, 10**400], ids=lambda each: str(each)[:9]
)
async def test_what_is_no_power_is_not_taken_for_one(service: Service, wrong: Any) -> None:
    service.documents = {
        **FIRST,
        f"{ROOT}/System.Embedded.1/Power": {"PowerControl": [{"PowerConsumedWatts": wrong}]},
    }
    assert await service.bmcs().read({"n1": NODE}, 0) == {}
    assert watts(wrong) is None


async def test_a_bmc_with_another_certificate_gets_no_password(
    service: Service, tmp_path: Path
) -> None:
    bmcs = service.bmcs()
    (tmp_path / "other").mkdir()
    other = Authority.made(tmp_path / "other", "authority")
    service.authority.file.write_bytes(other.file.read_bytes())

    assert "certificate" in (await service.why(bmcs)).lower()
    assert service.asked == []


async def test_a_connection_is_kept_until_a_reading_fails(service: Service) -> None:
    """After that each reading of this BMC has its own, for a day."""
    service.documents, bmcs = SECOND, service.bmcs("timeout_s = 1.0")

    async def port(now_ns: int) -> int:
        """Of the only connection of a reading."""
        service.ports.clear()
        assert set(await bmcs.read({"n1": NODE}, now_ns)) == {"n1"}
        (one,) = set(service.ports)
        return one

    before = [await port(0) for _ in range(3)]
    service.documents = {ROOT: never}
    assert "no answer in 1 s" in await service.why(bmcs)
    service.documents = SECOND
    own = [await port(now_ns) for now_ns in (0, 0, OWN_NS - 1)]
    kept = [await port(OWN_NS) for _ in range(3)]

    assert len({*before}) == len({*kept}) == 1
    assert len({*before, *own, *kept}) == 5


async def test_a_bmc_that_closes_idle_connections_is_read_all_the_same(service: Service) -> None:
    async def closing(request: web.Request) -> web.Response:
        assert request.transport is not None
        asyncio.get_running_loop().call_soon(request.transport.close)
        return web.json_response(SECOND[f"{ROOT}/1/EnvironmentMetrics"])

    service.documents, bmcs = {**SECOND, f"{ROOT}/1/EnvironmentMetrics": closing}, service.bmcs()
    for _ in range(3):
        assert set(await bmcs.read({"n1": NODE}, 0)) == {"n1"}


async def test_a_bmc_whose_password_changed_is_asked_with_the_new_one(
    service: Service, tmp_path: Path
) -> None:
    service.documents, bmcs = SECOND, service.bmcs()
    (tmp_path / "password").write_text("wrong")
    assert "answered 401" in await service.why(bmcs)
    (tmp_path / "password").write_text("s3cret")
    assert set(await bmcs.read({"n1": NODE}, 0)) == {"n1"}


def test_no_more_connections_are_kept_than_the_most() -> None:
    connections = Connections()
    connections.begin([f"https://{at:04d}" for at in range(2 * MOST_KEPT)], 0)
    connections.failed("https://0001", 0)
    assert len(connections._kept) == MOST_KEPT - 1
    connections.begin([f"https://{at:04d}" for at in range(1, 2 * MOST_KEPT)], 1)
    assert len(connections._kept) == MOST_KEPT
    assert not {"https://0000", "https://0001"} & connections._kept


DCMI = """
    Instantaneous power reading:                   220 Watts
    Minimum during sampling period:                 12 Watts
    Power reading state is:                   activated
"""


def ipmitool(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    (place / "ipmitool").write_text(f"#!/bin/sh\n{script}\n")
    (place / "ipmitool").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")


async def test_ipmitool_reads_dcmi_with_the_password_in_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(tmp_path)
    (tmp_path / "dcmi").write_text(DCMI)
    script = f'echo "$@" >{tmp_path}/words; cat {tmp_path}/dcmi'
    ipmitool(tmp_path, script, monkeypatch)
    found = await service.bmcs(address="{node}.bmc", kind="ipmi").read({"n1": NODE}, 0)

    assert (found["n1"].watts, found["n1"].provider) == (220, IPMI)
    words = (tmp_path / "words").read_text()
    assert words.split()[2:8] == ["-H", "n1.bmc", "-U", "reader", "-f", f"{tmp_path}/password"]
    assert "s3cret" not in words


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo no route; exit 1", "no route"),
        ("echo DCMI request failed", "no reading"),
        ("exec sleep 60", "no answer in 1 s"),
        ("exec yes", "more than 1048576 bytes"),
    ],
)
async def test_an_ipmitool_that_fails_leaves_the_node_without_a_reading(
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ipmitool(tmp_path, script, monkeypatch)
    service = Service(tmp_path)

    assert why in await service.why(service.bmcs("timeout_s = 1.0", address="b", kind="ipmi"))


def test_a_bmc_that_measures_nothing_says_so() -> None:
    assert of_dcmi(DCMI) == 220
    assert of_dcmi(DCMI.replace("activated", "deactivated")) is None
    assert of_dcmi(DCMI.replace("220", "0")) is None


async def test_a_node_that_its_agent_measures_is_not_asked_of_its_bmc(service: Service) -> None:
    """Its BMC is read once the agent was silent for a minute; its own readings do not count."""
    service.documents = SECOND
    now = module.OTHERS_COUNT_NS * 10

    def node(provider: str, age_ns: int) -> NodeState:
        sample = Sample(now - age_ns, 1000)
        return NodeState(ordinal=0, at=0, present=True, provider=provider, samples=(sample,))

    fresh, old = module.OTHERS_COUNT_NS - 1, module.OTHERS_COUNT_NS
    bmcs = service.bmcs()
    assert await bmcs.read({"n1": node("rapl package+memory", fresh)}, now) == {}
    assert service.asked == []
    assert set(await bmcs.read({"n1": node("rapl package+memory", old)}, now)) == {"n1"}
    assert set(await bmcs.read({"n1": node(REDFISH, fresh)}, now)) == {"n1"}


async def test_a_reading_is_a_fact_that_names_its_source(
    service: Service, bus: JetStreamLog, view: View
) -> None:
    service.documents = FIRST
    await bus.publish([producer("watch").stamp(node_seen("n1"))])
    await until(lambda: "n1" in view.cluster_state.nodes, 60)
    settings = Source({"NODE_POWER_INTERVAL": "1s"}).load(PowerSettings)
    async with background(scrape_power(bus, CLUSTER, view, settings, service.bmcs()), "scrape"):
        await until(lambda: service.asked.count(ROOT) >= 1)
        async with asyncio.timeout(60):
            while not (await bus.state(Stream.TEL)).last:
                await asyncio.sleep(0.05)
    record = await bus.message(Stream.TEL, 1)
    assert record is not None
    event = codec.decoded(record.data, "test")

    assert isinstance(event, TelemetrySampled)
    assert (event.node, event.power_mw, event.provider) == ("n1", 412_000, REDFISH)


NAMES = ("n1", "n2")


async def test_a_bmc_is_read_for_the_nodes_that_an_exporter_does_not_measure(
    service: Service, bus: JetStreamLog, view: View
) -> None:
    """Both have a BMC, of which only one is asked."""
    service.documents = {
        path.replace("/1", f"/{at}"): SECOND[path] for path in SECOND for at in "12"
    }
    slot = "bmc.node-restriction.kubernetes.io/slot"

    async def kepler(request: web.Request) -> web.Response:
        """A Prometheus that knows one node."""
        is_asked = request.query.get("query") == "kepler_node_cpu_watts"
        series = {"metric": {"node_name": "n1", "zone": "package"}, "value": [1.0, "212.5"]}
        data = {"resultType": "vector", "result": [series] if is_asked else []}
        return web.json_response({"status": "success", "data": data})

    watch = producer("watch")
    nodes = [replace(node_seen(name), labels={slot: name[1:]}) for name in NAMES]
    await bus.publish([watch.stamp(each) for each in nodes])
    await until(lambda: set(NAMES) <= set(view.cluster_state.nodes), 60)
    async with serving(kepler) as url:
        values = {"NODE_POWER_ADDRESS": url, "NODE_POWER_INTERVAL": "200ms"}
        settings = Source(values).load(PowerSettings)
        bmcs = service.bmcs(f'chassis = "{{{slot}}}"')
        async with background(scrape_power(bus, CLUSTER, view, settings, bmcs), "scrape"):
            await until(lambda: all(view.cluster_state.nodes[name].samples for name in NAMES), 60)

    providers = {name: view.cluster_state.nodes[name].provider for name in NAMES}
    assert providers == {"n1": "kepler package", "n2": REDFISH}
