"""Beside a real kube-apiserver, where there is one; and the same beside the stand-in, so that what
starts it and the tests themselves are known to work.
"""

import asyncio
import contextlib
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from joulie_bus.embedded import free_port
from joulie_extender.filter import WANTS_PERFORMANCE
from joulie_operator.resources import NODETWINS
from joulie_process import joulie
from kube_builders import node, pod
from kube_real import (
    ASSETS,
    DEPLOY,
    SCHEDULER,
    ProgramMissing,
    Running,
    program,
    real_server,
    started,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
KIT = Path(__file__).parents[1] / "kit"
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
PATIENCE_S = 90.0


def stand_in(directory: Path) -> Path:
    """A directory with programs of the same names, that take the same flags."""
    directory.mkdir()
    scripts = {
        "etcd": "sleep 600",
        "kube-apiserver": f'{sys.executable} {KIT}/kube_program.py "$@"',
    }
    for name, line in scripts.items():
        path = directory / name
        path.write_text(f"#!/bin/sh\nexec {line}\n")
        path.chmod(0o755)
    return directory


@pytest.fixture(params=["real", "stand-in"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Running, None]:
    """Four managed nodes."""
    if request.param == "stand-in":
        assets = stand_in(tmp_path / "programs")
    else:
        try:
            assets = program(ASSETS, "kube-apiserver").parent
            program(ASSETS, "etcd")
        except ProgramMissing as missing:
            pytest.skip(f"wants a directory with etcd and kube-apiserver: {missing}")
    async with real_server(tmp_path / "server", assets) as running:
        for number in range(4):
            name = f"n{number}"
            made = node(name)
            made["metadata"]["labels"]["kubernetes.io/hostname"] = name
            made["status"]["allocatable"]["pods"] = "110"
            made["status"]["capacity"] = made["status"]["allocatable"]
            await running.put(NODES, made)
        yield running


def up(server: Running, data: Path, **environ: str) -> AbstractAsyncContextManager[Process]:
    """As the account of the manifest."""
    return joulie("up", server.kubeconfig("operator"), data, PATIENCE_S, **environ)


async def so(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.2)


async def profiles(server: Running) -> dict[str, str]:
    """Of the nodes whose label, twin and status agree."""
    nodes, twins = await server.all(NODES), await server.all(NODETWINS)
    labels = {
        name: tree["metadata"].get("labels", {}).get("joulie.io/power-profile", "")
        for name, tree in nodes.items()
    }
    return {
        name: labels[name]
        for name, twin in twins.items()
        if twin["spec"].get("profile")
        == labels.get(name)
        == twin.get("status", {}).get("schedulableClass")
    }


def are(server: Running, **counts: int) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        return Counter((await profiles(server)).values()) == counts

    return is_so


def has_twins(server: Running, *names: str) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        return sorted(await server.all(NODETWINS)) == [*names]

    return is_so


async def test_from_nodes_to_applied_twins_and_back(server: Running, tmp_path: Path) -> None:
    async with up(server, tmp_path / "data") as process:
        await so(are(server, performance=2, eco=2))
        await server.put(NODES, node("n4"), node("n5"))
        await so(are(server, performance=3, eco=3))
        await server.api.delete(f"{NODES}/n5")
        await so(are(server, performance=3, eco=2))
        await so(has_twins(server, "n0", "n1", "n2", "n3", "n4"))
    assert process.returncode == 0

    twins = await server.all(NODETWINS)
    generations = {
        (twin["status"]["observedGeneration"], twin["metadata"]["generation"])
        for twin in twins.values()
    }
    assert all(observed == generation for observed, generation in generations)


# --- with a real scheduler --------------------------------------------------------------------


@contextlib.asynccontextmanager
async def scheduling(server: Running, extender: str) -> AsyncGenerator[Process, None]:
    """kube-scheduler with the block of deploy/kube-scheduler.yaml."""
    told = yaml.safe_load((DEPLOY / "kube-scheduler.yaml").read_text())
    told["clientConnection"] = {"kubeconfig": str(server.kubeconfig("admin"))}
    told["leaderElection"] = {"leaderElect": False}
    told["extenders"][0]["urlPrefix"] = f"http://{extender}"
    config = server.directory / "scheduler.yaml"
    config.write_text(yaml.safe_dump(told))
    command = [str(program(SCHEDULER)), f"--config={config}", "--secure-port=0"]
    async with started(command, server.directory) as process:
        yield process


def placed(server: Running, *names: str) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        pods = await server.all(PODS)
        return all(pods[name]["spec"].get("nodeName") for name in names)

    return is_so


def refused_by_us(server: Running, name: str) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        conditions = (await server.all(PODS))[name]["status"].get("conditions", [])
        return any(WANTS_PERFORMANCE in each.get("message", "") for each in conditions)

    return is_so


def asks(name: str, workload: str, on: str = "") -> dict[str, object]:
    made = pod(name, workload=workload, namespace="default")
    resources = {"requests": {"cpu": "1", "memory": "16Mi"}}
    made["spec"]["containers"] = [{"name": "c", "image": "none", "resources": resources}]
    made["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": on}} if on else {}
    return made


@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_a_real_scheduler_keeps_performance_pods_off_eco_nodes_and_survives_us(
    server: Running, tmp_path: Path
) -> None:
    try:
        program(SCHEDULER)
    except ProgramMissing as missing:
        pytest.skip(f"wants a kube-scheduler: {missing}")
    extender, names = f"127.0.0.1:{free_port()}", [f"fast-{number}" for number in range(4)]
    async with (
        up(server, tmp_path / "data", EXTENDER_ADDR=extender) as process,
        scheduling(server, extender) as scheduler,
    ):
        await so(are(server, performance=2, eco=2))
        found = await profiles(server)
        an_eco_node = next(name for name, profile in found.items() if profile == "eco")
        await server.put(PODS, *[asks(name, "performance") for name in names])
        await server.put(PODS, asks("refused", "performance", on=an_eco_node))
        await server.put(PODS, asks("slow", "standard", on=an_eco_node))
        await so(placed(server, *names, "slow"))
        await so(refused_by_us(server, "refused"))
        pods = await server.all(PODS)
        process.kill()
        await process.wait()
        await server.put(PODS, asks("late", "performance"))
        await so(placed(server, "late"))
        assert scheduler.returncode is None

    assert {found[pods[name]["spec"]["nodeName"]] for name in names} == {"performance"}
    assert "nodeName" not in pods["refused"]["spec"]
