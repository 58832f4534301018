"""Conditions of a cluster that tests wait for."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from joulie_operator.resources.custom_resources import GPUS, NODETWINS
from kube_real import Running, Tree

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
TIMEOUT_S = 90.0
Condition = Callable[[], Awaitable[bool]]


async def wait_until(condition: Condition) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await condition():
            await asyncio.sleep(0.2)


async def profiles(server: Running) -> dict[str, str]:
    """The profiles of nodes with matching label, spec and status."""
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


def profiles_are(server: Running, **counts: int) -> Condition:
    async def condition() -> bool:
        return Counter((await profiles(server)).values()) == counts

    return condition


def has_twins(server: Running, *names: str) -> Condition:
    async def condition() -> bool:
        return sorted(await server.all(NODETWINS)) == [*names]

    return condition


async def pod_of(server: Running, name: str) -> Tree:
    return (await server.all(PODS))[name]


def placed(server: Running, *names: str) -> Condition:
    async def condition() -> bool:
        pods = await server.all(PODS)
        return all(pods[name]["spec"].get("nodeName") for name in names)

    return condition


def refused(server: Running, name: str, because: str) -> Condition:
    async def condition() -> bool:
        conditions = (await pod_of(server, name))["status"].get("conditions", [])
        return any(because in each.get("message", "") for each in conditions)

    return condition


async def remaining_pods(server: Running, names: Iterable[str]) -> list[str]:
    pods = await server.all(PODS)
    there = [name for name in names if name in pods]
    return [name for name in there if "deletionTimestamp" not in pods[name]["metadata"]]


def held_by(server: Running, *names: str) -> Condition:
    """Whether the GPU objects name exactly these pods."""

    async def condition() -> bool:
        statuses = [each.get("status", {}) for each in (await server.all(GPUS)).values()]
        return all(statuses) and sorted(each.get("podName", "") for each in statuses) == sorted(
            names
        )

    return condition
