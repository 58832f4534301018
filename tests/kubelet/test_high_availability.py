"""Parts die one after another while pods arrive, on a large cluster: `make cluster-ha`.

A real kubelet runs the chart with values-ha.yaml; kwok plays 1,000 more nodes. HA_MINUTES is how
long pods arrive.
"""

import asyncio
import contextlib
import datetime
import itertools
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from joulie_operator.resources.custom_resources import NODEHARDWARES, NODETWINS
from kube_builders import node_hardware
from kube_real import started
from node_cluster import Cluster, Tree, running_cluster
from node_drill import (
    NAMESPACE,
    PARTS,
    component_of,
    lasting_pods,
    processes_of,
    ready,
    recomputed,
    run,
    say,
    scaled,
    scheduled_namespace,
    small_replicas,
    told_by_joulie,
    until,
)
from node_objects import fake_node, fake_pod, volumes
from node_programs import kwok
from node_services import owned_database, secret_of_the_database, users_of_the_database
from projections_kit import Postgres

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(7200)]
MINUTES = float(os.environ.get("HA_MINUTES", "10"))
NODES = 1000
PODS_PER_MINUTE = 500
KILL_EVERY_S = 10
PATIENCE_S = 1800.0  # the machine may be slow
AT_ONCE = 16  # requests
AWAY_S = 60  # after a replica of the extender died, until calls do not go there any more
MANY = "many"
REPLICAS = 15  # of all components with values-ha.yaml
WITHOUT_JOULIE = 100


class Death(NamedTuple):
    at: float  # time.time()
    part: str
    how: str


class Placement(NamedTuple):
    """When and by which scheduler a pod got its node."""

    at: float
    scheduler: str


# --- the cluster --------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def large_cluster(place: Path) -> AsyncGenerator[Cluster, None]:
    async with running_cluster(place) as cluster, started(kwok(cluster.server), place):
        with owned_database() as database:
            await has_nodes(cluster)
            await installed(cluster, database)
            yield cluster


async def all_made(cluster: Cluster, path: str, trees: Sequence[Tree]) -> None:
    for first in range(0, len(trees), AT_ONCE):
        some = trees[first : first + AT_ONCE]
        await asyncio.gather(*(cluster.server.api.create(path, tree) for tree in some))


def names() -> list[str]:
    return [f"fake-{number}" for number in range(NODES)]


async def has_nodes(cluster: Cluster) -> None:
    await all_made(cluster, "/api/v1/nodes", [fake_node(name) for name in names()])

    async def all_ready() -> bool:
        said = await cluster.told("get", "nodes", "--no-headers")
        return len(re.findall(r" Ready ", said)) == NODES + 1

    await until(all_ready, f"{NODES} nodes are ready beside the real one", PATIENCE_S)


async def installed(cluster: Cluster, database: Postgres) -> None:
    await volumes(cluster, projectors=2, brokers=3, extenders=3)
    namespace = {"apiVersion": "v1", "kind": "Namespace"}
    await cluster.apply(namespace | {"metadata": {"name": NAMESPACE}})
    await scheduled_namespace(cluster, MANY)
    await secret_of_the_database(cluster)
    small = small_replicas(cluster)
    files = ["-f", "deploy/chart/values-ha.yaml", "-f", str(small)]
    await run(cluster, ["helm", "install", "joulie", "deploy/chart", "-n", NAMESPACE, *files])
    await users_of_the_database(cluster, database)
    await ready(cluster, REPLICAS, PATIENCE_S)
    hardware = [{"apiVersion": "joulie.io/v1alpha1", "kind": "NodeHardware"} for _ in names()]
    trees = [both | node_hardware(name) for both, name in zip(hardware, names(), strict=True)]
    await all_made(cluster, NODEHARDWARES, trees)

    async def all_planned() -> bool:
        return len(await cluster.server.all(NODETWINS)) >= NODES

    await until(all_planned, f"the operator has planned {NODES} nodes", PATIENCE_S)
    await first_decision(cluster)


async def first_decision(cluster: Cluster) -> None:
    numbers = itertools.count()

    async def one_is_explained() -> bool:
        await cluster.apply(fake_pod(f"first-{next(numbers)}", MANY))
        return any(await decided(cluster))

    await until(one_is_explained, "a decision is in the log", PATIENCE_S)


# --- pods and deaths ----------------------------------------------------------------------------


async def pods_arrive(cluster: Cluster, count: int, per_s: float) -> None:
    """One after another, at a steady rate; every fifth one is of class performance."""
    path, began_s = f"/api/v1/namespaces/{MANY}/pods", time.monotonic()
    for number in range(count):
        wait_s = began_s + number / per_s - time.monotonic()
        await asyncio.sleep(max(0, wait_s))
        given = {"joulie.io/workload-class": "performance"} if number % 5 == 0 else {}
        await cluster.server.api.create(path, fake_pod(f"p-{number}", MANY, **given))
    say(f"{count} pods have arrived in {time.monotonic() - began_s:.0f} s")


async def parts_die(cluster: Cluster, deaths: list[Death]) -> None:
    """One replica of each part in turn: its process is killed, and the next time its pod ends."""
    draw, began_s = random.Random(1), time.monotonic()
    for number, part in enumerate(itertools.cycle(PARTS)):
        await asyncio.sleep(max(0, began_s + number * KILL_EVERY_S - time.monotonic()))
        how = "killed" if number % 2 == 0 else "deleted"
        if await (a_process_dies if how == "killed" else a_pod_ends)(cluster, part, draw):
            deaths.append(Death(time.time(), part, how))


async def a_process_dies(_: Cluster, part: str, draw: random.Random) -> bool:
    """False if none runs, because the last one has just died."""
    found = processes_of(part)
    with contextlib.suppress(ProcessLookupError):
        for process in draw.sample(found, min(1, len(found))):
            os.kill(process, signal.SIGKILL)
    return bool(found)


async def a_pod_ends(cluster: Cluster, part: str, draw: random.Random) -> bool:
    component = part.removeprefix("kube-")
    found = [
        pod["metadata"]["name"]
        for pod in await lasting_pods(cluster)
        if component_of(pod) == component and "deletionTimestamp" not in pod["metadata"]
    ]
    for name in draw.sample(found, min(1, len(found))):
        await cluster.told("delete", "pod", "-n", NAMESPACE, name, "--wait=false")
    return bool(found)


async def without_a_node(cluster: Cluster) -> int:
    path = f"/api/v1/namespaces/{MANY}/pods"
    pages = cluster.server.api.pages(path, {"fieldSelector": "spec.nodeName="})
    return sum([len(page.items) async for page in pages])


async def all_placed(cluster: Cluster, count: int) -> None:
    async def none_waits() -> bool:
        return await without_a_node(cluster) == 0

    await until(none_waits, f"all {count} pods have a node", PATIENCE_S)


# --- what became of them ------------------------------------------------------------------------


async def placements(cluster: Cluster) -> dict[str, Placement]:
    found = {}
    async for page in cluster.server.api.pages(f"/api/v1/namespaces/{MANY}/pods"):
        for item in page.items:
            pod = msgspec.json.decode(item, type=Tree)
            conditions = {each["type"]: each for each in pod["status"]["conditions"]}
            since = conditions["PodScheduled"]["lastTransitionTime"]
            at = msgspec.convert(since, datetime.datetime).timestamp()
            found[pod["metadata"]["name"]] = Placement(at, pod["spec"]["schedulerName"])
    return found


async def decided(cluster: Cluster) -> dict[str, set[str]]:
    """The kinds of entries that the log has of each pod."""
    words = ["decisions", "--namespace", MANY, "--limit", "1000000"]
    kinds: dict[str, set[str]] = {}
    said = await told_by_joulie(cluster, *words)
    for kind, pod in re.findall(rf"^ *\d+ +\S+ +(\S+) +{MANY}/(\S+)", said, re.MULTILINE):
        kinds.setdefault(pod, set()).add(kind)
    return kinds


async def log_is_complete(cluster: Cluster) -> dict[str, set[str]]:
    """What the log says, once the spools of the extenders are empty."""
    before: dict[str, set[str]] = {}

    async def nothing_is_new() -> bool:
        nonlocal before
        now = await decided(cluster)
        is_same, before = now == before and bool(now), now
        return is_same

    await until(nothing_is_new, "the log has all decisions", PATIENCE_S)
    return before


def report(deaths: list[Death], found: dict[str, Placement], log: dict[str, set[str]]) -> None:
    say(f"deaths: {dict(Counter(f'{death.part} {death.how}' for death in deaths))}")
    say(f"entries: {dict(Counter('+'.join(sorted(log.get(name, ()))) for name in found))}")
    alone = placed_alone(found, log)
    say(f"{len(found) - len(alone)} of {len(found)} pods have a decision; alone: {len(alone)}")
    for name in alone:
        before = [death for death in deaths if death.at <= found[name].at + 1][-3:]
        ages = [f"{each.part} {each.how} {found[name].at - each.at:.0f} s" for each in before]
        say(f"  {name} has no decision; before it: {', '.join(ages)}")


def placed_alone(found: dict[str, Placement], log: dict[str, set[str]]) -> list[str]:
    """The pods that kube-scheduler placed without an answer, in this order."""
    return sorted((name for name in found if name not in log), key=lambda name: found[name].at)


def is_near_a_death(placement: Placement, deaths: list[Death]) -> bool:
    """An extender had just died. Times of Kubernetes have whole seconds."""
    return any(
        death.part == "extender" and -1 <= placement.at - death.at <= AWAY_S for death in deaths
    )


async def placed_without_joulie(cluster: Cluster) -> None:
    await scaled(cluster, 0)
    path = f"/api/v1/namespaces/{MANY}/pods"
    await all_made(cluster, path, [fake_pod(f"z-{n}", MANY) for n in range(WITHOUT_JOULIE)])
    await all_placed(cluster, WITHOUT_JOULIE)
    found = await placements(cluster)
    assert {found[f"z-{n}"].scheduler for n in range(WITHOUT_JOULIE)} == {"joulie"}


async def test_every_pod_is_placed_while_parts_die_one_after_another(place: Path) -> None:
    count = round(PODS_PER_MINUTE * MINUTES)
    deaths: list[Death] = []
    async with large_cluster(place) as cluster:
        async with asyncio.TaskGroup() as group:
            dying = group.create_task(parts_die(cluster, deaths))
            await pods_arrive(cluster, count, PODS_PER_MINUTE / 60)
            dying.cancel()
        await all_placed(cluster, count)
        found = await placements(cluster)
        await ready(cluster, REPLICAS, PATIENCE_S)
        log = await log_is_complete(cluster)
        report(deaths, found, log)
        assert len(found) >= count
        assert {each.scheduler for each in found.values()} == {"joulie"}
        for name in placed_alone(found, log):
            assert is_near_a_death(found[name], deaths), name
        await recomputed(cluster)
        await placed_without_joulie(cluster)
