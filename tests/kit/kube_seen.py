"""What a cluster is seen to be in, and waited for."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from joulie_operator.kube.custom_resources import GPUS, NODETWINS
from kube_real import Running, Tree

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
PATIENCE_S = 90.0
Condition = Callable[[], Awaitable[bool]]


async def so(condition: Condition) -> None:
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


def are(server: Running, **counts: int) -> Condition:
    async def is_so() -> bool:
        return Counter((await profiles(server)).values()) == counts

    return is_so


def has_twins(server: Running, *names: str) -> Condition:
    async def is_so() -> bool:
        return sorted(await server.all(NODETWINS)) == [*names]

    return is_so


async def pod_of(server: Running, name: str) -> Tree:
    return (await server.all(PODS))[name]


def placed(server: Running, *names: str) -> Condition:
    async def is_so() -> bool:
        pods = await server.all(PODS)
        return all(pods[name]["spec"].get("nodeName") for name in names)

    return is_so


def refused(server: Running, name: str, because: str) -> Condition:
    async def is_so() -> bool:
        conditions = (await pod_of(server, name))["status"].get("conditions", [])
        return any(because in each.get("message", "") for each in conditions)

    return is_so


async def who_stayed(server: Running, names: Iterable[str]) -> list[str]:
    pods = await server.all(PODS)
    there = [name for name in names if name in pods]
    return [name for name in there if "deletionTimestamp" not in pods[name]["metadata"]]


def held_by(server: Running, *names: str) -> Condition:
    """Do the GPU objects say that these pods have the cards?"""

    async def is_so() -> bool:
        said = [each.get("status", {}) for each in (await server.all(GPUS)).values()]
        return all(said) and sorted(each.get("podName", "") for each in said) == sorted(names)

    return is_so
