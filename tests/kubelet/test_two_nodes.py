"""Two nodes that are drained in turn, and a kubelet that freezes: `make cluster-two`."""

import contextlib
import os
import re
import signal
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from node_cluster import Cluster, Tree, running_cluster
from node_drill import (
    NAMESPACE,
    PROJECTOR,
    SHOP,
    arriving,
    explanation,
    is_running,
    line_of,
    pods,
    ready,
    recomputed,
    run,
    say,
    scheduled_namespace,
    until,
    until_running,
)
from node_objects import deployment, volumes
from readme_commands import INSIDE

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(3600)]
LOST_AFTER_S = 40  # as in clusters by default
WEB = 6
DRAIN = "--ignore-daemonsets --delete-emptydir-data --force --timeout=4m"


async def installed(cluster: Cluster) -> None:
    await volumes(cluster)
    for command in INSIDE[:2]:
        await run(cluster, command.split())
    await scheduled_namespace(cluster, SHOP)
    await cluster.apply(impatient(deployment("web", SHOP, replicas=WEB)))


def impatient(tree: Tree) -> Tree:
    """Its pods are replaced ten seconds after their node is lost, and not five minutes."""
    tree["spec"]["template"]["spec"]["tolerations"] = [
        {
            "key": f"node.kubernetes.io/{lost}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 10,
        }
        for lost in ("unreachable", "not-ready")
    ]
    return tree


async def drained(cluster: Cluster, node: str) -> list[str]:
    """Pods arrive all the while; returns their names."""
    began_s = time.monotonic()
    async with arriving(cluster, f"while-{node}-drains", SHOP) as names:
        await cluster.told("drain", node, *DRAIN.split())
    say(f"{node} is drained after {time.monotonic() - began_s:.0f} s; {len(names)} pods arrived")
    await until_running(cluster, names, SHOP)
    return names


async def state_of(cluster: Cluster, node: str) -> str:
    """What `kubectl joulie status` prints for it."""
    text = await cluster.told("joulie", "status")
    found = re.search(rf"^{node}  +\S+  +\S+  +(\S+(?: \S+)*)  ", text, re.MULTILINE)
    assert found, text
    return found[1]


async def until_state(cluster: Cluster, node: str, state: str) -> None:
    async def is_told() -> bool:
        return await state_of(cluster, node) == state

    await until(is_told, f"`kubectl joulie status` has {node} as {state}")


async def explained(cluster: Cluster, names: list[str]) -> int:
    return len([name for name in names if await explanation(cluster, f"{SHOP}/{name}")])


async def web_runs(cluster: Cluster, node: str) -> None:
    async def all_there() -> bool:
        found = [pod for pod in await pods(cluster, SHOP) if pod["metadata"]["name"][:4] == "web-"]
        there = [pod for pod in found if pod["spec"].get("nodeName") == node]
        return len(list(filter(is_running, there))) == WEB

    await until(all_there, f"{WEB} pods run on {node}")


@contextlib.asynccontextmanager
async def frozen(node: str) -> AsyncGenerator[None, None]:
    """The kubelet of the node stands still; its containers run on."""
    begins = re.compile(rf"kubelet .*--hostname-override={node}\b")
    [kubelet] = [
        int(each.name) for each in Path("/proc").glob("[0-9]*") if begins.match(line_of(each))
    ]
    os.kill(kubelet, signal.SIGSTOP)
    say(f"the kubelet of {node} is frozen")
    try:
        yield
    finally:
        os.kill(kubelet, signal.SIGCONT)


async def test_two_nodes_are_drained_in_turn_and_the_kubelet_of_one_freezes(place: Path) -> None:
    async with running_cluster(place, nodes=2, lost_after_s=LOST_AFTER_S) as cluster:
        await installed(cluster)
        home = (await cluster.read("pod", PROJECTOR, "-n", NAMESPACE))["spec"]["nodeName"]
        [away] = [node.name for node in cluster.nodes if node.name != home]

        names = await drained(cluster, away)
        await until_state(cluster, away, "cordoned")
        await web_runs(cluster, home)
        await cluster.told("uncordon", away)
        await until_state(cluster, away, "awake")
        say(f"{await explained(cluster, names)} of {len(names)} pods are explained")

        # The volume of the log stays on this node, and with it all that read it.
        names = await drained(cluster, home)
        await web_runs(cluster, away)
        say(await cluster.told("joulie", "status"))
        await cluster.told("uncordon", home)
        await ready(cluster)
        say(f"{await explained(cluster, names)} of {len(names)} pods are explained")
        await recomputed(cluster)

        async with frozen(away):
            await until_state(cluster, away, "not ready")
            await web_runs(cluster, home)
            say(await cluster.told("joulie", "status"))
        await until_state(cluster, away, "awake")
        await ready(cluster)
        await recomputed(cluster)
