"""Objects beyond the bounds of facts are logged and counted, and the watch continues."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bus_kit import CLUSTER, memory_log, noon, until
from joulie_bus.events import NodeSeen, PodBound, PodPending
from joulie_bus.events.bounds import MOST_CARDS, MOST_CPU_MILLI, MOST_GPU_MILLI
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.producer import Producer
from joulie_bus.runtime import metrics
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_operator.facts.facts_from_objects import (
    ChangeFilter,
    GpuKind,
    Node,
    NodeKind,
    PodKind,
)
from joulie_operator.facts.hardware_inventory import Inventory
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe.fact_publisher import FactPublisher
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_operator.resources.custom_resources import Gpu
from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.view.view import View
from kube_api import ADMIN, ApiServer
from kube_builders import card, joulie_server, node, pod

pytestmark = pytest.mark.anyio
LARGEST = str(2**63 - 1)
VRAM = "joulie.io/gpu-vram-mb"
CARDS = dict.fromkeys(("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"), LARGEST)


def asking(name: str, **requests: str) -> dict[str, Any]:
    """A pod that was created with a node name, which an API server accepts."""
    made = pod(name, node="n1")
    asked = {resource.replace("_", "/"): value for resource, value in requests.items()}
    made["spec"]["containers"] = [{"name": "c", "resources": {"requests": asked}}]
    return made


def annotated(name: str, text: str) -> dict[str, Any]:
    made = pod(name)
    made["metadata"]["annotations"] = {VRAM: text}
    return made


@contextlib.asynccontextmanager
async def watching(
    server: ApiServer, bus: JetStreamLog, view: View, tmp: Path
) -> AsyncGenerator[asyncio.Task[None], None]:
    async with (
        server.listening(),
        Api.of(server.kubeconfig(tmp, ADMIN)) as api,
        background(
            watch_cluster(
                api, bus, CLUSTER, view, ObservedCluster.empty(), Inventory(shipped_catalog())
            ),
            "watch",
        ) as task,
    ):
        yield task


def left_out(what: str) -> float:
    return float(metrics.LEFT_OUT.labels(what=what)._value.get())


async def test_the_watch_continues_whatever_an_api_server_accepts(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server = joulie_server()
    boastful = node("n1")
    boastful["status"]["allocatable"] |= CARDS | {"cpu": LARGEST, "memory": LARGEST}
    server.put("nodes", boastful)
    server.put("pods", asking("cores", cpu="1e14"), "team")
    server.put("pods", asking("t", cpu="20T", memory="7E"), "team")
    for number in range(3):
        server.put("pods", asking(f"gpus{number}", **{"nvidia.com_gpu": "9e15"}), "team")
    server.put("pods", annotated("zeros", "0000001" + "0" * 23), "team")
    server.put("pods", annotated("more", "0" * 11 + "1" + "0" * 5000), "team")
    async with watching(server, bus, view, tmp_path) as task:
        await until(lambda: len(view.cluster_state.pods) == 7)
        server.put("pods", pod("after"), "team")
        await until(lambda: len(view.cluster_state.pods) == 8)
        assert not task.done()
        asked = {state.pod.name: state.pod for state in view.cluster_state.pods.values()}
        assert asked["cores"].cpu_milli == asked["t"].cpu_milli == MOST_CPU_MILLI
        assert asked["gpus0"].gpu_milli == MOST_GPU_MILLI
        assert asked["zeros"].gpu.unreadable == asked["more"].gpu.unreadable == VRAM
        assert view.cluster_state.nodes["n1"].gpus == MOST_CARDS
        assert view.cluster_state.nodes["n1"].load.cpu_milli > 2 * MOST_CPU_MILLI
        for name in ("cores", "t", "gpus0", "gpus1", "gpus2"):
            server.delete("pods", name, "team")
        await until(lambda: len(view.cluster_state.pods) == 3)
        assert view.cluster_state.nodes["n1"].pods == 0
        assert view.cluster_state.nodes["n1"].load.cpu_milli == 0


async def test_a_card_with_a_very_long_uuid_is_left_out_and_the_connection_stays(
    bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    before = left_out("gpus")
    server = joulie_server()
    server.put("nodes", node("n1"))
    endless = card("GPU-1", "n1")
    server.put("gpus", endless)
    # A CRD without limits accepts such a card.
    server.objects.table(server.kind("gpus"))["", "gpu-1"]["spec"]["uuid"] = "G" * 100_000
    server.put("gpus", card("GPU-2", "n1"))
    async with watching(server, bus, view, tmp_path):
        await until(lambda: list(view.cluster_state.gpus) == ["GPU-2"])

    assert left_out("gpus") == before + 1


NODES = [
    {"metadata": {"name": "a\0b", "uid": "u"}},
    {"metadata": {"name": "x" * 5000, "uid": "u"}},
    {"metadata": {"name": "n", "uid": "u" * 65}},
    {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "lots"}}},
    {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "-1"}}},
]


@pytest.mark.parametrize("odd", NODES, ids=["NUL", "name", "uid", "no quantity", "negative"])
async def test_an_object_beyond_the_bounds_does_not_block_the_others(
    odd: dict[str, Any],
) -> None:
    log = memory_log()
    facts = FactPublisher([ChangeFilter(NodeKind(), {})], log, Producer("o", CLUSTER, noon))
    things = [msgspec.convert(each, Node) for each in (odd, {"metadata": {"name": "fine"}})]
    before = left_out("Node") + left_out(NodeSeen.TYPE)

    await facts.add_listed(things)
    await facts.apply_events([("MODIFIED", thing) for thing in things])
    await facts.end_list()

    assert (await log.state(Stream.OBS)).last == 1
    assert left_out("Node") + left_out(NodeSeen.TYPE) > before


def test_excessive_requests_are_published_at_the_bound() -> None:
    seen = msgspec.convert(asking("p", cpu="9" * 5000), Pod)
    fact = PodKind().fact(seen)

    assert isinstance(fact, PodBound)
    assert fact.pod.cpu_milli == MOST_CPU_MILLI


@pytest.mark.parametrize(
    "text", ["0000001000000000000", "0" * 5000 + "1", "9" * 5000, "1\0", "100000001"]
)
def test_a_pod_with_an_impossible_annotation_fits_no_node(text: str) -> None:
    fact = PodKind().fact(msgspec.convert(annotated("p", text), Pod))

    assert isinstance(fact, PodPending)
    assert fact.pod.gpu.unreadable == VRAM


def test_a_card_with_the_longest_names_still_has_a_subject() -> None:
    spec = {"nodeName": "n" * 253, "uuid": "~" * 253}
    fact = GpuKind().fact(msgspec.convert({"spec": spec}, Gpu))

    assert fact is not None
    assert Producer("o", CLUSTER, noon).stamp(fact).subject.count("=7E") == 253
