"""`joulie plans --defragment --evict` with a real kube-apiserver and kube-scheduler."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from joulie_bus.runtime.ports import free_port
from joulie_operator.power.cordons import UNTIL, Cordons
from joulie_operator.resources.custom_resources import GPUS
from joulie_process import joulie
from kube_builders import card, schedulable
from kube_conditions import NODES, PODS, TIMEOUT_S, Condition, placed, wait_until
from kube_real import PLACES, ROOT, SCHEDULER, TOKENS, Running, Tree, program_or_skip
from kube_scheduled import deployed_block, scheduling

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("server", ["real"], indirect=True),
]
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
GPU = {"apiVersion": GPUS.removeprefix("/apis/").removesuffix("/gpus"), "kind": "GPU"}
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "etl",
    "uid": "6f1a6a5e-0000-4000-8000-000000000000",
    "controller": True,
}


async def may_move(server: Running) -> Path:
    """A kubeconfig with exactly the rights that the documentation names."""
    found = re.search(
        r"```yaml\n(.*?joulie-moves.*?)```", (ROOT / "docs/gpus.md").read_text(), re.S
    )
    assert found is not None
    role = yaml.safe_load(found[1])
    to = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "joulie-moves"}
    subject = {"apiGroup": to["apiGroup"], "kind": "User", "name": TOKENS["viewer"][0]}
    binding: Tree = {"metadata": {"name": "moves"}, "roleRef": to, "subjects": [subject]}
    await server.put(PLACES["ClusterRole"], role)
    await server.put(PLACES["ClusterRoleBinding"], binding)
    return server.kubeconfig("viewer")


def asks(name: str, cores: int, gpus: int = 0, on: str = "", *, owned: bool = False) -> Tree:
    """Without a grace period: no kubelet ends a pod that is evicted."""
    requests = {"cpu": str(cores)} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    resources = {"requests": requests, "limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}
    spec: Tree = {
        "containers": [{"name": "c", "image": "none", "resources": resources}],
        "terminationGracePeriodSeconds": 0,
    }
    metadata: Tree = {"name": name} | ({"ownerReferences": [OWNER]} if owned else {})
    return {"metadata": metadata, "spec": spec | ({"nodeName": on} if on else {})}


@contextlib.asynccontextmanager
async def fragmented(server: Running, data: Path) -> AsyncGenerator[None, None]:
    """Pods without GPUs take the cores beside the GPUs of two nodes, and one with GPUs waits."""
    program_or_skip(SCHEDULER)
    extender = f"127.0.0.1:{free_port()}"
    for name in ("gpu-0", "gpu-1"):
        await server.put(NODES, schedulable(name, gpus=8))
        await server.put(GPUS, *[GPU | card(f"{name}-{number}", name) for number in range(8)])
    await server.put(PODS, asks("etl-0", 94, on="gpu-0", owned=True))
    await server.put(PODS, asks("etl-1", 94, on="gpu-1", owned=True))
    await server.put(PODS, asks("train", 8, gpus=8))
    config = server.kubeconfig("operator")
    async with (
        joulie("up", config, data, TIMEOUT_S, EXTENDER_ADDR=extender, STATIC_HP_FRAC="0"),
        scheduling(server, deployed_block("kube-scheduler.yaml", extender)),
    ):
        await wait_until(_planned(data, 2))
        yield


async def started(data: Path, *words: str) -> Process:
    command = (sys.executable, "-m", "joulie_cli.main", "plans", "--defragment", "-o", "json")
    told = (*words, "--data", str(data))
    return await asyncio.create_subprocess_exec(*command, *told, stdout=PIPE, stderr=PIPE)


async def printed(process: Process) -> Any:
    out, err = await process.communicate()
    assert out, err.decode()
    return json.loads(out)


def _planned(data: Path, moves: int) -> Condition:
    async def condition() -> bool:
        process = await started(data)
        out, _ = await process.communicate()
        return process.returncode == 0 and len(json.loads(out)["moves"]) == moves

    return condition


@contextlib.asynccontextmanager
async def replicas(server: Running, cores: int = 94) -> AsyncGenerator[None, None]:
    """As a ReplicaSet of two pods: there is no controller manager."""

    async def run() -> None:
        made = 2
        while True:
            names = [name for name in await server.all(PODS) if name.startswith("etl-")]
            if len(names) < 2:
                await server.put(PODS, asks(f"etl-{made}", cores, owned=True))
                made += 1
            await asyncio.sleep(0.1)

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def cordoned(server: Running) -> list[str]:
    nodes = (await server.all(NODES)).items()
    return [name for name, tree in nodes if tree["spec"].get("unschedulable")]


async def test_the_plan_is_carried_out_and_the_pod_that_waited_gets_its_gpus(
    server: Running, tmp_path: Path
) -> None:
    data, account = tmp_path / "data", await may_move(server)
    async with fragmented(server, data), replicas(server):
        process = await started(data, "--kubeconfig", str(account), "--evict")
        report = await printed(process)
        await wait_until(placed(server, "train"))
        pods, events = await server.all(PODS), await server.all(EVENTS)

    outcomes = [move["outcome"] for move in report["moves"]]
    assert [each["what"] for each in outcomes] == ["moved", "moved"]
    assert process.returncode == 0
    there = {name: pods[name]["spec"]["nodeName"] for name in pods if name.startswith("etl-")}
    assert sorted(there) == ["etl-2", "etl-3"]
    assert sorted(there.values()) == sorted(each["node"] for each in outcomes)
    assert not {"gpu-0", "gpu-1"} & set(there.values())
    assert await cordoned(server) == []
    noted = [each["note"] for each in events.values() if each["reason"] == "PodEvicted"]
    assert len(noted) == 2
    assert all("free GPUs are of use" in note for note in noted)


async def test_a_replacement_without_a_place_and_a_signal_end_the_run_without_a_cordon(
    server: Running, tmp_path: Path
) -> None:
    data, account = tmp_path / "data", await may_move(server)
    async with fragmented(server, data), replicas(server, cores=500):
        process = await started(data, "--kubeconfig", str(account), "--evict")
        await wait_until(_exists(server, "etl-2"))
        held = await cordoned(server)
        process.send_signal(signal.SIGTERM)
        report = await printed(process)

    assert len(held) == 1
    assert [move["outcome"]["what"] for move in report["moves"]] == ["interrupted", "not-tried"]
    assert process.returncode == 1
    assert await cordoned(server) == []
    annotations = (await server.all(NODES))[held[0]]["metadata"].get("annotations", {})
    assert UNTIL not in annotations


def _exists(server: Running, name: str) -> Condition:
    async def condition() -> bool:
        return name in await server.all(PODS)

    return condition


async def test_the_cordon_of_another_stays_and_a_deleted_node_is_not_made_again(
    server: Running,
) -> None:
    said = list[str]()
    cordons = Cordons(server.api, time.time_ns, asyncio.sleep, said.append)
    theirs: Tree = {"spec": {"unschedulable": True}}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}, **theirs}

    async with cordons.on("n0"):
        await server.api.apply(f"{NODES}/n0", body, manager="another")
    async with cordons.on("n1"):
        held = await cordoned(server)
        await server.api.delete(f"{NODES}/n1")

    assert held == ["n0", "n1"]
    assert await cordoned(server) == ["n0"]
    assert "n1" not in await server.all(NODES)
    assert not cordons.is_left
    assert said == []


async def test_without_evict_nothing_changes_and_alone_it_is_an_error(
    server: Running, tmp_path: Path
) -> None:
    data, account = tmp_path / "data", await may_move(server)
    async with fragmented(server, data):
        await printed(await started(data, "--kubeconfig", str(account)))
        alone = await started(data, "--evict")
        _, why = await alone.communicate()
        pods = await server.all(PODS)

    assert {"etl-0", "etl-1"} < set(pods)
    assert alone.returncode == 2
    assert b"--evict" in why
    assert os.linesep.encode() not in why.strip()
