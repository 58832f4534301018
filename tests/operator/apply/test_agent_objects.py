"""NodeHardware and GPU objects follow from what agents found; those of others are left alone."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from joulie_bus import testing
from joulie_bus.events import InventoryRead
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import agent_name
from joulie_bus.testing import CLUSTER, inventory, noon
from joulie_operator.apply.agent_objects import AgentObjectWriter
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_projections.view.view import View
from kube_api import ApiServer
from kube_builders import card, joulie_server, node, node_hardware

pytestmark = pytest.mark.anyio
PATIENCE_S = 60


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
        await testing.until(lambda: "n1" in view.cluster_state.nodes, PATIENCE_S)
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
        sick = replace(inventory("n1", "GPU-B"), cards=())
        await bus.publish([producer.stamp(inventory("n1", "GPU-A", "GPU-B"))])
        await testing.until(lambda: len(gpus()) == 2 and bool(hardware()), PATIENCE_S)
        first = (set(gpus()), hardware()["gpu"]["count"], gpus()["gpu-a"]["nodeName"])

        await bus.publish([producer.stamp(inventory("n1", "GPU-B", problem="XID 79"))])
        await testing.until(lambda: set(gpus()) == {"gpu-b"}, PATIENCE_S)
        await testing.until(
            lambda: server.all("gpus")["gpu-b"].get("status", {}).get("healthy") is False,
            PATIENCE_S,
        )
        await bus.publish([producer.stamp(sick)])
        await testing.until(lambda: gpus() == {}, PATIENCE_S)
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
        await testing.until(lambda: len(view.cluster_state.gpus) == 1, PATIENCE_S)
        await publish(bus, inventory("n1", "GPU-A", "GPU-B"))
        await testing.until(lambda: "gpu-b" in server.all("gpus"), PATIENCE_S)
        await publish(bus, inventory("n1"))

    assert server.all("gpus")["gpu-a"] == before["gpus"]["gpu-a"]
    assert server.all("nodehardwares") == before["nodehardwares"]
