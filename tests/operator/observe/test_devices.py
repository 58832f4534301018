"""Devices of DRA, from the API server to the view."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import bus_kit
from bus_kit import CLUSTER
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_operator.facts.hardware_inventory import Inventory
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe.watch import ObservedCluster, watch_cluster
from joulie_operator.resources.device_objects import (
    CLAIMS,
    CLASSES,
    GROUP,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
)
from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.state.cards import is_idle, is_usable
from joulie_projections.view.view import View
from kube_api import ADMIN, ApiServer
from kube_builders import joulie_server, node
from kube_devices import (
    DRIVER,
    OF_TEMPLATE,
    claim,
    claiming,
    device_class,
    eight,
    resource_slice,
    serve_kinds,
    taint_rule,
    template,
)
from kube_fields import Kind

pytestmark = pytest.mark.anyio
PATIENCE_S = 120
LIMITED = "limited"


def serve_devices(server: ApiServer, version: str = "v1") -> None:
    serve_kinds(server, version)
    server.put(CLASSES, device_class())
    server.put(SLICES, resource_slice("n1", eight("n1")))
    server.put(TEMPLATES, template("two", 2), "default")


def bind(server: ApiServer) -> None:
    """A pod on n1 that has the first two devices."""
    tree = claiming("train", "template/two")
    tree["spec"] |= {"nodeName": "n1"}
    tree["status"] = {
        "phase": "Running",
        "resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "made"}],
    }
    uid = server.put("pods", tree, "default")["metadata"]["uid"]
    made = claim("made", 2)
    made["metadata"]["annotations"] = {OF_TEMPLATE: "gpus"}
    server.put(CLAIMS, made | {"status": allocated(uid)}, "default")


def allocated(uid: str) -> dict[str, Any]:
    results = [{"driver": DRIVER, "pool": "n1", "device": f"gpu-{at}"} for at in range(2)]
    reserved = [{"resource": "pods", "name": "train", "uid": uid}]
    return {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}


@pytest.fixture
def server() -> ApiServer:
    made = joulie_server()
    made.put("nodes", node("n1"))
    return made


@contextlib.asynccontextmanager
async def watching(
    server: ApiServer, bus: JetStreamLog, view: View, tmp: Path, token: str = ADMIN
) -> AsyncGenerator[ObservedCluster, None]:
    cluster, inventory = ObservedCluster.empty(), Inventory(shipped_catalog())
    async with (
        Api.of(server.kubeconfig(tmp, token)) as api,
        background(watch_cluster(api, bus, CLUSTER, view, cluster, inventory), "watch"),
    ):
        yield cluster


def held(view: View) -> list[str]:
    return sorted(name for name, card in view.cluster_state.gpus.items() if not is_idle(card))


def gpu_milli(view: View) -> int:
    return sum(pod.pod.gpu_milli for pod in view.cluster_state.pods.values() if not pod.finished)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_devices_and_their_holders_reach_the_view_by_each_version(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, version: str
) -> None:
    serve_devices(server, version)
    async with server.listening(), watching(server, bus, view, tmp_path):
        await bus_kit.until(lambda: len(view.cluster_state.gpus) == 8, PATIENCE_S)
        bind(server)
        await bus_kit.until(lambda: len(held(view)) == 2 and gpu_milli(view) == 2000, PATIENCE_S)
        seen = view.cluster_state.nodes["n1"]

        assert held(view) == ["GPU-n1-0", "GPU-n1-1"]
        assert view.cluster_state.gpus_asked("default", "template/two") == 2
        assert seen.gpus == 8
        assert seen.load.gpu_standard_milli == 2000
        assert seen.hardware is not None
        assert (seen.hardware.gpu_count, seen.hardware.gpu_max_mw) == (8, 700_000)


async def test_cards_are_free_once_the_pod_and_its_claim_are_gone(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    serve_devices(server)
    bind(server)
    async with server.listening(), watching(server, bus, view, tmp_path):
        await bus_kit.until(lambda: len(held(view)) == 2, PATIENCE_S)
        server.delete("pods", "train", "default")
        server.delete(CLAIMS, "made", "default")
        await bus_kit.until(lambda: not held(view) and not gpu_milli(view), PATIENCE_S)

        assert view.cluster_state.nodes["n1"].load.gpu_standard_milli == 0


async def test_a_restarted_operator_publishes_no_device_twice(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    serve_devices(server)
    bind(server)
    async with server.listening():
        async with watching(server, bus, view, tmp_path) as cluster:
            await bus_kit.until(lambda: len(held(view)) == 2, PATIENCE_S)
            await bus_kit.until(lambda: gpu_milli(view) == 2000, PATIENCE_S)
            await bus_kit.until(lambda: cluster.watches.is_view_current, PATIENCE_S)
        before = (await bus.state(Stream.OBS)).last
        async with watching(server, bus, view, tmp_path) as again:
            await bus_kit.until(lambda: again.watches.is_view_current, PATIENCE_S)
        after = (await bus.state(Stream.OBS)).last

    assert after == before


async def test_devices_that_are_gone_after_a_restart_are_gone(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    serve_devices(server)
    async with server.listening():
        async with watching(server, bus, view, tmp_path):
            await bus_kit.until(lambda: len(view.cluster_state.gpus) == 8, PATIENCE_S)
        server.delete(SLICES, resource_slice("n1", [])["metadata"]["name"])
        server.delete(TEMPLATES, "two", "default")
        async with watching(server, bus, view, tmp_path):
            await bus_kit.until(lambda: not view.cluster_state.gpus, PATIENCE_S)
            asked = view.cluster_state.gpus_asked
            await bus_kit.until(lambda: asked("default", "template/two") is None, PATIENCE_S)


async def test_without_the_api_everything_else_is_observed(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    server.put("pods", claiming("train", "template/two"), "default")
    async with server.listening(), watching(server, bus, view, tmp_path) as cluster:
        await bus_kit.until(lambda: cluster.watches.is_view_current, PATIENCE_S)

        assert list(view.cluster_state.nodes) == ["n1"]
        [pod] = view.cluster_state.pods.values()
        assert pod.pod.devices.claims == ("template/two",)
        assert not any(asked.group == GROUP for asked in server.asked)


async def test_without_the_right_everything_else_is_observed(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path
) -> None:
    serve_devices(server)
    everything = {
        (kind.group, kind.plural, verb)
        for kind in server.objects.kinds.values()
        for verb in ("list", "watch")
    }
    server.users[LIMITED] = ("limited", everything - {(GROUP, CLAIMS, "list")})
    async with server.listening(), watching(server, bus, view, tmp_path, LIMITED) as cluster:
        await bus_kit.until(lambda: cluster.watches.is_view_current, PATIENCE_S)

        assert list(view.cluster_state.nodes) == ["n1"]
        assert not view.cluster_state.gpus


def usable(view: View) -> int:
    return sum(map(is_usable, view.cluster_state.gpus.values()))


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1alpha3"])
async def test_devices_that_a_rule_taints_are_not_free(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, version: str
) -> None:
    serve_devices(server)
    rules = Kind(GROUP, version, TAINT_RULES, "DeviceTaintRule")
    server.objects.kinds[GROUP, TAINT_RULES] = rules
    server.put(TAINT_RULES, taint_rule("first", device="gpu-0"))
    async with server.listening(), watching(server, bus, view, tmp_path):
        await bus_kit.until(lambda: len(view.cluster_state.gpus) == 8, PATIENCE_S)
        assert usable(view) == 7  # from the first fact on
        server.put(TAINT_RULES, taint_rule("second", device="gpu-1"))
        await bus_kit.until(lambda: usable(view) == 6, PATIENCE_S)
        server.delete(TAINT_RULES, "first")
        server.delete(TAINT_RULES, "second")
        await bus_kit.until(lambda: usable(view) == 8, PATIENCE_S)


@pytest.mark.parametrize("lacks", ["the right", "the API"])
async def test_without_rules_of_taints_devices_are_known_all_the_same(
    server: ApiServer, bus: JetStreamLog, view: View, tmp_path: Path, lacks: str
) -> None:
    serve_devices(server)
    server.put(TAINT_RULES, taint_rule("all"))
    everything = {
        (kind.group, kind.plural, verb)
        for kind in server.objects.kinds.values()
        for verb in ("list", "watch")
    }
    if lacks == "the API":
        del server.objects.kinds[GROUP, TAINT_RULES]
    else:
        everything -= {(GROUP, TAINT_RULES, "list")}
    server.users[LIMITED] = ("limited", everything)
    async with server.listening(), watching(server, bus, view, tmp_path, LIMITED) as cluster:
        await bus_kit.until(lambda: cluster.watches.is_view_current, PATIENCE_S)
        await bus_kit.until(lambda: usable(view) == 8, PATIENCE_S)
