"""Pods that ask for devices by DRA, with a real kube-scheduler, which gives the devices out."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

from joulie_bus.runtime.ports import free_port
from joulie_process import joulie
from joulie_projections.history.history import History
from joulie_projections.state.cards import is_idle
from joulie_projections.state.state import ClusterState
from kube_builders import asking, schedulable
from kube_conditions import NODES, PODS, TIMEOUT_S, Condition, placed, pod_of, wait_until
from kube_devices import (
    CLAIMS,
    CLASSES,
    SLICES,
    TEMPLATES,
    claim,
    claiming,
    device_class,
    eight,
    end_claiming,
    put_claiming,
    resource_slice,
    template,
)
from kube_real import SCHEDULER, Running, program_or_skip
from kube_scheduled import deployed_block, scheduling

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
ONLY_REAL = pytest.mark.parametrize("server", ["real"], indirect=True)
FREED_S = 2.0
LOOK_S = 0.05
CARDS_W = 8 * 700 * 0.65  # of a pod of class standard, without a preset
CORES = 8
EXTENDED_SINCE = 37  # the minor version


class Scheduled(NamedTuple):
    server: Running
    data: Path
    extender: str


@contextlib.asynccontextmanager
async def scheduled(server: Running, tmp_path: Path) -> AsyncGenerator[Scheduled, None]:
    program_or_skip(SCHEDULER)
    data, extender = tmp_path / "data", f"127.0.0.1:{free_port()}"
    settings = {"EXTENDER_ADDR": extender, "LEASE_DURATION": "15s"}
    async with (
        joulie("up", server.kubeconfig("operator"), data, TIMEOUT_S, **settings),
        scheduling(server, deployed_block("kube-scheduler.yaml", extender)),
    ):
        yield Scheduled(server, data, extender)


def has_cards(cluster: Scheduled, count: int) -> Condition:
    async def condition() -> bool:
        return len((await gpus(cluster.data))["items"]) == count

    return condition


def has_holders(cluster: Scheduled, count: int) -> Condition:
    async def condition() -> bool:
        return len(holders(await gpus(cluster.data))) == count

    return condition


async def gpus(data: Path) -> dict[str, Any]:
    """What `joulie gpus` shows."""
    command = (sys.executable, "-m", "joulie_cli.main", "gpus", "-o", "json", "--data", str(data))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    found: dict[str, Any] = json.loads(out or '{"items": []}')
    return found


def holders(found: dict[str, Any]) -> list[str]:
    return [pod for card in found["items"] for each in card["allocated"] for pod in each["pods"]]


async def freed_after(cluster: Scheduled, name: str) -> float:
    """Seconds from the end of a pod and its claim until the database has its cards free."""
    await end_claiming(cluster.server, name)
    began = time.monotonic()
    while any(not is_idle(card) for card in state_of(cluster).gpus.values()):
        await asyncio.sleep(LOOK_S)
        assert time.monotonic() < began + TIMEOUT_S
    return time.monotonic() - began


def state_of(cluster: Scheduled) -> ClusterState:
    with History.of(cluster.data / "joulie.db") as history:
        return history.cluster_state()


async def added_w(cluster: Scheduled, name: str) -> dict[str, float]:
    """By candidate: what the pod adds, as it was scored."""
    uid = (await pod_of(cluster.server, name))["metadata"]["uid"]

    def read() -> list[dict[str, Any]]:
        with urlopen(f"http://{cluster.extender}/explain/{uid}") as page:
            answers: list[dict[str, Any]] = json.load(page)["answers"]
            return answers

    answers = await asyncio.to_thread(read)
    [scored] = [each for each in answers if each["verb"] == "prioritize"][:1]
    return {terms["node"]: terms["marginal_w"] for terms in scored["best"]}


async def two_nodes(server: Running, of: dict[str, Any]) -> None:
    """Nodes with eight devices each, and their class."""
    for name in ("a", "b"):
        made = schedulable(name)
        made["metadata"]["labels"]["pool"] = "gpus"
        await server.put(NODES, made)
        await server.put(SLICES, resource_slice(name, eight(name)))
    await server.put(CLASSES, of)


@ONLY_REAL
async def test_a_pod_with_eight_claimed_cards_holds_them_and_adds_their_watts(
    server: Running, tmp_path: Path
) -> None:
    await two_nodes(server, device_class())
    await server.put(TEMPLATES, template("eight", 8))
    asks = claiming("train", "template/eight", cores=CORES, **{"joulie.io/gpu-model": "H100"})
    plain = asking("plain", cpu=str(CORES), memory="16Mi")
    plain["spec"]["nodeSelector"] = {"pool": "gpus"}  # scored on the same nodes
    async with scheduled(server, tmp_path) as cluster:
        await wait_until(has_cards(cluster, 16))
        await put_claiming(server, asks)
        await wait_until(placed(server, "train"))
        await wait_until(has_holders(cluster, 8))
        held = await gpus(cluster.data)
        await server.put(PODS, plain)
        await wait_until(placed(server, "plain"))
        of_train, of_plain = [await added_w(cluster, name) for name in ("train", "plain")]
        freed_s = await freed_after(cluster, "train")
        after = await gpus(cluster.data)

    [node] = {card["node"] for card in held["items"] if card["allocated"]}
    assert set(holders(held)) == {"default/train"}
    assert of_train[node] - of_plain[node] == pytest.approx(CARDS_W)
    print(f"\n{server.version}: free {freed_s:.3f} s after the pod was gone")
    assert freed_s < FREED_S
    assert after["sums"]["whole"] == 16


@ONLY_REAL
async def test_an_extended_resource_of_a_device_class_counts_once(
    server: Running, tmp_path: Path
) -> None:
    """From 1.37 on: kube-scheduler makes the claim, and the node has nothing in allocatable."""
    if (minor := int(server.version.split(".")[1])) < EXTENDED_SINCE:
        pytest.skip(f"1.{minor} needs a feature gate for extended resources of DRA")
    named = device_class()
    named["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    await two_nodes(server, named)
    asks = asking("train", cpu=str(CORES), memory="16Mi")
    asks["metadata"]["annotations"] = {"joulie.io/gpu-model": "H100"}
    asks["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "8"}
    async with scheduled(server, tmp_path) as cluster:
        await wait_until(has_cards(cluster, 16))
        await server.put(PODS, asks)
        await wait_until(placed(server, "train"))
        await wait_until(has_holders(cluster, 8))
        held = await gpus(cluster.data)
        with History.of(cluster.data / "joulie.db") as history:
            nodes = history.cluster_state().nodes

    assert set(holders(held)) == {"default/train"}
    assert sorted(nodes[name].load.gpu_standard_milli for name in ("a", "b")) == [0, 8000]
    assert [nodes[name].gpus for name in ("a", "b")] == [8, 8]


@ONLY_REAL
async def test_two_pods_of_one_claim_hold_its_cards_once(server: Running, tmp_path: Path) -> None:
    await two_nodes(server, device_class())
    await server.put(CLAIMS, claim("shared", 2))
    async with scheduled(server, tmp_path) as cluster:
        await wait_until(has_cards(cluster, 16))
        await put_claiming(server, *[claiming(name, "claim/shared") for name in ("p", "q")])
        await wait_until(placed(server, "p", "q"))
        await wait_until(has_holders(cluster, 4))
        held = await gpus(cluster.data)
        with History.of(cluster.data / "joulie.db") as history:
            state = history.cluster_state()

    assert [card["allocated"][0]["pods"] for card in held["items"] if card["allocated"]] == [
        sorted(["default/p", "default/q"], key=_uids(state).__getitem__)
    ] * 2
    assert sorted(node.load.gpu_standard_milli for node in state.nodes.values())[-2:] == [0, 2000]
    assert {pod.pod.name: pod.pod.gpu_milli for pod in state.pods.values()} == {
        "p": 1000,
        "q": 1000,
    }


def _uids(state: ClusterState) -> dict[str, str]:
    return {f"{pod.pod.namespace}/{pod.pod.name}": uid for uid, pod in state.pods.items()}


@ONLY_REAL
async def test_cards_of_a_plugin_and_of_dra_are_each_counted_once(
    server: Running, tmp_path: Path
) -> None:
    """Of eight nodes with eight cards each, half have a device plugin. A pod of each kind runs."""
    for at in range(8):
        by_plugin = at < 4
        await server.put(NODES, schedulable(f"m{at}", gpus=8 if by_plugin else 0))
        if not by_plugin:
            await server.put(SLICES, resource_slice(f"m{at}", eight(f"m{at}")))
    await server.put(CLASSES, device_class())
    await server.put(TEMPLATES, template("eight", 8))
    plain = asking("plain", cpu=str(CORES), memory="16Mi")
    plain["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "8"}
    async with scheduled(server, tmp_path) as cluster:
        await wait_until(has_cards(cluster, 32))
        await server.put(PODS, plain)
        await put_claiming(server, claiming("claims", "template/eight", cores=CORES))
        await wait_until(placed(server, "plain", "claims"))
        await wait_until(has_holders(cluster, 8))
        found = state_of(cluster).nodes
        nodes = [found[f"m{at}"] for at in range(8)]

    assert [node.gpus for node in nodes] == [8] * 8
    assert sum(node.gpus for node in found.values()) == 64
    loads = sorted(node.load.gpu_standard_milli for node in nodes)
    assert loads == [0] * 6 + [8000, 8000]
