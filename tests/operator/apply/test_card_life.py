"""A GPU resource from the binding of the article's pod until its end, by extender and operator.

All facts are published by the real components: the operator's watch, the binder and the reconciler
of claims. They use a real broker and projector, and an API server as recorded.
"""

import contextlib
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import bus_kit
from bus_kit import CLUSTER
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_extender.binding.bind import Bindings
from joulie_extender.binding.claim_log import ClaimLog
from joulie_extender.binding.claim_reconciler import ClaimReconciler
from joulie_extender.binding.kubernetes_binding import KubeBinder
from joulie_extender.catalogue.weights import Weights
from joulie_extender.gpu.fit import gpu_verdicts
from joulie_extender.protocol.kube_scheduler import Binding
from joulie_operator.apply.gpu_status import GpuStatusWriter
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_operator.resources.custom_resources import MANAGER
from joulie_projections.view.view import View
from kube_api import ApiServer
from kube_builders import articles_pod, card, joulie_server, node

pytestmark = pytest.mark.anyio
PATIENCE_S = 120
NAME = "training-job-resnet50"
ARTICLE = articles_pod()


class Place(NamedTuple):
    server: ApiServer
    view: View
    bindings: Bindings

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server.all("gpus")["gpu-1"]["status"]
        return found

    @property
    def shown(self) -> tuple[str, str, int]:
        status = self.status
        return status["phase"], status.get("podName", ""), status.get("allocatedVRAMmb", 0)

    async def says(self, *expected: object) -> None:
        await bus_kit.until(lambda: self.shown == expected, PATIENCE_S)

    async def bound(self) -> None:
        pod = self.server.put("pods", ARTICLE, "default")
        uid = pod["metadata"]["uid"]
        await bus_kit.until(lambda: uid in self.view.cluster_state.pods, PATIENCE_S)
        decided = await self.bindings.bind(Binding(pod_name=NAME, pod_uid=uid, node="n1"))
        assert (decided.outcome, decided.cards) == ("bound", ["GPU-1"])
        await self.says("Allocated", NAME, 81_559)


@pytest.fixture
async def place(bus: JetStreamLog, view: View, tmp_path: Path) -> AsyncGenerator[Place, None]:
    server, cluster = joulie_server(), ObservedCluster.empty()
    server.put("nodes", node("n1", gpus=1))
    server.put("gpus", card("GPU-1", "n1"))
    claim_log = ClaimLog(bus, CLUSTER, view, "r0")
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(server.listening())
        kubeconfig = server.kubeconfig(tmp_path)
        api = await stack.enter_async_context(Api.of(kubeconfig))
        binder = await stack.enter_async_context(KubeBinder.of(str(kubeconfig)))
        claim_reconciler = ClaimReconciler(view, claim_log, binder, time.time_ns, grace_s=0.1)
        for name, part in (
            ("watch", watch_cluster(api, bus, CLUSTER, view, cluster)),
            ("cards", GpuStatusWriter(api, view, cluster, 10).run()),
            ("claims", claim_reconciler.run()),
        ):
            await stack.enter_async_context(background(part, name))
        await bus_kit.until(lambda: "GPU-1" in view.cluster_state.gpus, PATIENCE_S)
        bindings = Bindings(view, claim_log, binder, Weights(), time.time_ns)
        yield Place(server, view, bindings)


async def test_a_resource_names_the_pod_of_its_card_until_the_pod_ends(place: Place) -> None:
    await place.bound()
    uid = place.status["podUID"]
    assert place.view.cluster_state.gpus["GPU-1"].claims[uid].confirmed

    place.server.put(
        "pods", {"metadata": {"name": NAME}, "status": {"phase": "Succeeded"}}, "default"
    )

    await place.says("Available", "", 0)
    assert place.view.cluster_state.gpus["GPU-1"].claims == {}


async def test_a_resource_is_free_again_when_its_pod_is_deleted(place: Place) -> None:
    await place.bound()

    place.server.delete("pods", NAME, "default")

    await place.says("Available", "", 0)


async def test_a_status_that_another_writer_overwrites_is_restored(place: Place) -> None:
    """The other writer is a DaemonSet that ignores claims, as in the article."""
    await place.bound()
    wrong = {"phase": "Available", "allocatedVRAMmb": 0, "podName": "", "podUID": ""}

    place.server.put("gpus", {"metadata": {"name": "gpu-1"}, "status": wrong})
    assert place.shown == ("Available", "", 0)

    await place.says("Allocated", NAME, 81_559)
    managers = place.server.all("gpus")["gpu-1"]["metadata"]["managedFields"]
    assert MANAGER in [each["manager"] for each in managers]
    assert len(place.view.cluster_state.gpus["GPU-1"].claims) == 1


async def test_a_claimed_card_is_given_to_no_other_pod_whatever_its_resource_says(
    place: Place,
) -> None:
    """The race of the article: the resource may be wrong, the log is not."""
    await place.bound()
    other = articles_pod("other")
    made = place.server.put("pods", other, "default")["metadata"]["uid"]
    await bus_kit.until(lambda: made in place.view.cluster_state.pods, PATIENCE_S)
    place.server.put("gpus", card("GPU-1", "n1"))

    decided = await place.bindings.bind(Binding(pod_name="other", pod_uid=made, node="n1"))

    assert decided.error == "the node has not the cards any more that the pod asks for"
    await place.says("Allocated", NAME, 81_559)


async def test_a_card_belongs_to_the_pod_of_another_scheduler(place: Place) -> None:
    for name in ("first", "second"):
        resources = {"limits": {"nvidia.com/gpu": "1"}}
        spec = {"nodeName": "n1", "containers": [{"name": "c", "resources": resources}]}
        place.server.put("pods", {"metadata": {"name": name}, "spec": spec}, "default")

    await bus_kit.until(lambda: place.shown[0] == "Allocated", PATIENCE_S)
    holder = place.status["podUID"]
    third = place.server.put("pods", articles_pod("third"), "default")["metadata"]["uid"]
    await bus_kit.until(lambda: third in place.view.cluster_state.pods, PATIENCE_S)
    pod, columns = place.view.cluster_state.pods[third].pod, place.view.snapshot().twin_columns
    assert gpu_verdicts(pod, columns, np.array([columns.rows["n1"]]), ()).all()

    [name] = [pod.pod.name for uid, pod in place.view.cluster_state.pods.items() if uid == holder]
    place.server.delete("pods", name, "default")

    other = {"first": "second", "second": "first"}[name]
    await bus_kit.until(lambda: place.shown[:2] == ("Allocated", other), PATIENCE_S)
