"""Pods whose fit nodes are outside of the sample that kube-scheduler sends to the extender."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from joulie_bus.runtime.ports import free_port
from joulie_process import joulie
from kube_builders import asking, schedulable
from kube_conditions import NODES, PODS, TIMEOUT_S, profiles
from kube_real import SCHEDULER, Running, all_of, program_or_skip
from kube_scheduled import deployed_block, scheduling

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
ONLY_REAL = pytest.mark.parametrize("server", ["real"], indirect=True)
MOST_S = 60.0
UNTHROTTLED = {"qps": 5000, "burst": 10000}


class Sizes:
    """One sample in eight holds performance nodes; by default on 5,000 nodes, one in ten."""

    nodes, performance_nodes, percentage = 800, 8, 13
    performance_pods, others = 60, 240


def a_node(number: int) -> dict[str, Any]:
    """The last ones by name are denser, and are therefore planned for performance."""
    is_last = number >= Sizes.nodes - Sizes.performance_nodes
    return schedulable(f"node-{number:05d}", cores=96 if is_last else 64)


def a_pod(number: int) -> dict[str, Any]:
    is_performance = number % (Sizes.others // Sizes.performance_pods + 1) == 0
    workload = "performance" if is_performance else ""
    return asking(f"web-{number}", workload=workload, cpu="500m", memory="1Mi")


async def planned(server: Running) -> None:
    async with asyncio.timeout(TIMEOUT_S * 2):
        while True:
            found = list((await profiles(server)).values())
            counts = found.count("performance"), len(found)
            if counts == (Sizes.performance_nodes, Sizes.nodes):
                return
            await asyncio.sleep(1)


async def seconds_until_placed(server: Running, count: int) -> tuple[float, dict[str, str]]:
    """The seconds until all pods are bound, at most MOST_S; and the node of each bound pod."""
    began = time.monotonic()
    while True:
        pods = await server.all(PODS)
        nodes = {name: str(each["spec"].get("nodeName", "")) for name, each in pods.items()}
        bound, took = {name: on for name, on in nodes.items() if on}, time.monotonic() - began
        if len(bound) == count or took > MOST_S:
            return took, bound
        await asyncio.sleep(1)


@ONLY_REAL
async def test_pods_whose_fit_nodes_are_hidden_from_the_samples_are_placed_within_a_minute(
    server: Running, tmp_path: Path
) -> None:
    program_or_skip(SCHEDULER)
    await all_of([server.api.delete(f"{NODES}/{name}") for name in await server.all(NODES)])
    await all_of(server.api.create(NODES, a_node(number)) for number in range(Sizes.nodes))
    count, extender = Sizes.performance_pods + Sizes.others, f"127.0.0.1:{free_port()}"
    settings = {
        "EXTENDER_ADDR": extender,
        "APPLY_RATE": "2000",
        "LEASE_DURATION": "15s",
        "STATIC_HP_FRAC": str(Sizes.performance_nodes / Sizes.nodes),
    }
    config = deployed_block("kube-scheduler.yaml", extender)
    config |= {"clientConnection": UNTHROTTLED, "percentageOfNodesToScore": Sizes.percentage}
    operator, data = server.kubeconfig("operator"), tmp_path / "data"
    async with joulie("up", operator, data, TIMEOUT_S, **settings):
        await planned(server)
        await all_of(server.api.create(PODS, a_pod(number)) for number in range(count))
        async with scheduling(server, config):
            took, bound = await seconds_until_placed(server, count)
            found = await profiles(server)
    print(f"{len(bound)} of {count} pods placed in {took:.0f} s")
    performance = [f"web-{number}" for number in range(0, count, count // Sizes.performance_pods)]
    assert len(bound) == count, f"{count - len(bound)} pods still wait after {took:.0f} s"
    assert {found[bound[name]] for name in performance} == {"performance"}
