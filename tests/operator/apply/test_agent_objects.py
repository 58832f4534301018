"""NodeHardware and GPU objects follow from what agents found; those of others are left alone."""

import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

import bus_kit
from bus_kit import CLUSTER, inventory, noon
from joulie_bus.events import InventoryRead
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime import metrics
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import agent_name
from joulie_operator.apply.agent_objects import AgentObjectWriter
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_projections.state.cards import CardState
from joulie_projections.state.state import ClusterState
from joulie_projections.view.view import View
from kube_api import ApiServer, Fault
from kube_builders import card, joulie_server, node, node_hardware

pytestmark = pytest.mark.anyio
PATIENCE_S = 120


@contextlib.asynccontextmanager
async def writing(
    server: ApiServer, bus: JetStreamLog, view: View, tmp: Path
) -> AsyncGenerator[None, None]:
    cluster = ObservedCluster.empty()
    async with (
        server.listening(),
        Api.of(server.kubeconfig(tmp)) as api,
        background(watch_cluster(api, bus, CLUSTER, view, cluster), "watch"),
        background(AgentObjectWriter(api, view, cluster, 10).run(), "objects"),
    ):
        await bus_kit.until(lambda: "n1" in view.cluster_state.nodes, PATIENCE_S)
        yield


async def publish(bus: JetStreamLog, *found: InventoryRead) -> None:
    producer = Producer(agent_name("n1"), CLUSTER, lambda: noon(0), boot="b")
    await bus.publish([producer.stamp(each) for each in found])


async def test_objects_are_written_renewed_and_deleted(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server = joulie_server()
    server.put("nodes", node("n1", gpus=2))

    def gpus() -> dict[str, Any]:
        return {name: found.get("spec", {}) for name, found in server.all("gpus").items()}

    def hardware() -> dict[str, Any]:
        status: dict[str, Any] = server.all("nodehardwares").get("n1", {}).get("status", {})
        return status

    async with writing(server, bus, view, tmp_path):
        producer = Producer(agent_name("n1"), CLUSTER, lambda: noon(0), boot="b")
        sick = replace(inventory("n1", "GPU-b"), cards=())
        await bus.publish([producer.stamp(inventory("n1", "GPU-a", "GPU-b"))])
        await bus_kit.until(lambda: len(gpus()) == 2 and bool(hardware()), PATIENCE_S)
        first = (set(gpus()), hardware()["gpu"]["count"], gpus()["gpu-a"]["nodeName"])

        await bus.publish([producer.stamp(inventory("n1", "GPU-b", problem="XID 79"))])
        await bus_kit.until(lambda: set(gpus()) == {"gpu-b"}, PATIENCE_S)
        await bus_kit.until(
            lambda: server.all("gpus")["gpu-b"].get("status", {}).get("healthy") is False,
            PATIENCE_S,
        )
        await bus.publish([producer.stamp(sick)])
        await bus_kit.until(lambda: gpus() == {}, PATIENCE_S)
        assert view.cluster_state.nodes["n1"].hardware is not None
        assert view.cluster_state.nodes["n1"].hardware.source == "agent", "no fact from our object"

    assert first == ({"gpu-a", "gpu-b"}, 2, "n1")


async def test_objects_of_others_are_neither_adopted_nor_deleted(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server = joulie_server()
    server.put("nodes", node("n1", gpus=2))
    server.put("nodehardwares", node_hardware("n1", gpus=4))
    server.put("gpus", card("GPU-A", "n1"))
    before = {kind: dict(server.all(kind)) for kind in ("gpus", "nodehardwares")}
    async with writing(server, bus, view, tmp_path):
        await bus_kit.until(lambda: len(view.cluster_state.gpus) == 1, PATIENCE_S)
        await publish(bus, inventory("n1", "GPU-a", "GPU-b"))
        await bus_kit.until(lambda: "gpu-b" in server.all("gpus"), PATIENCE_S)
        await publish(bus, inventory("n1"))

    assert server.all("gpus")["gpu-a"] == before["gpus"]["gpu-a"]
    assert server.all("nodehardwares") == before["nodehardwares"]


class Known(NamedTuple):
    cluster_state: ClusterState


def writer_of(
    cards: dict[str, CardState], api: Api, clock: Callable[[], float] = time.monotonic
) -> AgentObjectWriter:
    state = ClusterState()
    state.gpus.update(cards)
    return AgentObjectWriter(api, Known(state), ObservedCluster.empty(), 10, clock)


async def test_a_name_that_the_api_server_refuses_is_tried_seldom_and_logged_once(
    server: ApiServer, api: Api
) -> None:
    """One round each two seconds: the pause of each object is its own, and doubles."""
    cards = {f"c{number}": CardState(at=1, node="n1", source="agent") for number in range(16)}
    seconds = [0.0]
    writer = writer_of(cards, api, lambda: seconds[0])
    refused = Fault(lambda asked: asked.name != "c0", status=422, reason="Invalid", times=10_000)
    server.faults.append(refused)
    with capture_logs() as logs:
        for _ in range(100):
            await writer._reconcile()
            seconds[0] += 2

    tried = Counter(asked.name for asked in server.asked if asked.verb == "patch")
    assert tried.pop("c0") == 2, "the object and its status"
    assert set(tried.values()) == {8}, "after 2, 4, 8, 16, 32, 60 and 60 s"
    assert Counter(each["name"] for each in logs if each["event"] == "not_applied") == {
        name: 1 for name in cards if name != "c0"
    }


async def test_a_card_that_two_agents_list_is_reported_once_with_its_nodes(api: Api) -> None:
    writer = writer_of({"a": CardState(at=1, contested=("n1", "n2"))}, api)
    with capture_logs() as logs:
        await writer._reconcile()
        await writer._reconcile()
        found = metrics.CONTESTED_CARDS._value.get()
        writer._view.cluster_state.gpus.clear()
        await writer._reconcile()

    told = [each for each in logs if each["event"] == "card_contested"]
    assert [(each["card"], each["nodes"]) for each in told] == [("a", ("n1", "n2"))]
    assert (found, metrics.CONTESTED_CARDS._value.get()) == (1, 0)
