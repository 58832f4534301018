"""Runs a mixed workload on a real kube-scheduler, with a bare extender and with Joulie.

    make kube && make bench NAME=workload [ARGS="--minutes 30 --nodes 5000"]

Jobs of several kinds are created at a steady rate, and their pods are deleted after a while, as in
scheduler_perf. The mix:

    standard     one pod without preferences
    performance  one pod of class performance
    eco-only     one pod that selects eco nodes by their label
    gang         eight pods at once, at most one on a node (required anti-affinity)
    spread       four pods that prefer different nodes (topology spread)
    preemption   one pod of high priority, for a node that a pod of low priority fills

A fit node exists at any time for every kind but the last, which has to evict a pod first. Each kind
has p50, p99 and the longest time from creation to binding; the ratio is that of the p99 of both
extenders over all kinds with a fit node. A pod that is still pending at the end is counted
with the time that it has waited. The labels of the nodes are those of Joulie's plan in both runs.
Two minutes are the default, for a first look.
"""

import argparse
import asyncio
import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from bindings import Bindings, Waits
from extenders_beside import (
    AT_ONCE,
    BARE,
    cluster_of,
    configured,
    pods_gone,
    require_programs,
    settled,
)
from readings import node_name
from report import Table

from joulie_bus.runtime.presets import HEADROOM
from joulie_operator.kube.api_client import ApiServer, ApiUnreachable
from kube_builders import pod
from kube_conditions import PODS
from kube_real import Running, all_of
from kube_scheduled import scheduling

SMALLEST = {"nodes": 20, "minutes": 0.4, "pool": 4}
PODS_PER_S = 40
LIFETIME_S = 40.0  # of a pod, after which it is deleted
TRIES = 5
LAST_PATIENCE_S = 30.0  # for the pods that are pending at the end
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
UNPLACED = "not placed"
PREEMPTION, ALL_FIT = "preemption", "with a fit node"
HOST = "kubernetes.io/hostname"
Tree = dict[str, Any]


# --- jobs ---------------------------------------------------------------------------------------


def plain(name: str, cores: str = "500m", workload: str = "") -> Tree:
    """Without a grace period, a pod is deleted at once."""
    made = pod(name, workload=workload, namespace="default")
    resources = {"requests": {"cpu": cores, "memory": "1Mi"}}
    made["spec"]["containers"] = [{"name": "c", "image": "none", "resources": resources}]
    made["spec"]["terminationGracePeriodSeconds"] = 0
    return made


# The makers of jobs take a name and the number of the job among those of its kind.


def standard(name: str, _: int) -> list[Tree]:
    return [plain(name)]


def performance(name: str, _: int) -> list[Tree]:
    return [plain(name, workload="performance")]


def eco_only(name: str, _: int) -> list[Tree]:
    made = plain(name)
    made["spec"]["nodeSelector"] = {"joulie.io/power-profile": "eco"}
    return [made]


def gang(name: str, _: int) -> list[Tree]:
    rule = {"labelSelector": {"matchLabels": {"job": name}}, "topologyKey": HOST}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    return [with_job(plain(f"{name}-{each}"), name, affinity=affinity) for each in range(8)]


def spread(name: str, _: int) -> list[Tree]:
    rule = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"job": name}},
    }
    pods = [plain(f"{name}-{each}") for each in range(4)]
    return [with_job(made, name, topologySpreadConstraints=[rule]) for made in pods]


def with_job(made: Tree, job: str, **spec: Any) -> Tree:
    made["metadata"]["labels"] = {"job": job}
    made["spec"] |= spec
    return made


def preemption(name: str, number: int) -> list[Tree]:
    return [filling(name, number, "high")]


def filling(name: str, number: int, priority: str) -> Tree:
    """A pod for most of this node."""
    made = plain(name, cores="60")
    made["spec"]["nodeSelector"] = {HOST: node_name(number)}
    made["spec"]["priorityClassName"] = priority
    return made


# Kind, share of the jobs in percent, maker. One pod in five is eco-only.
MIX: tuple[tuple[str, int, Callable[[str, int], list[Tree]]], ...] = (
    ("standard", 35, standard),
    ("performance", 25, performance),
    ("eco-only", 29, eco_only),
    ("gang", 5, gang),
    ("spread", 5, spread),
    (PREEMPTION, 1, preemption),
)


class Job(NamedTuple):
    kind: str
    pods: list[Tree]


def jobs(seed: int) -> Iterator[Job]:
    """The same jobs for both extenders; numbered by kind."""
    chance, numbers = random.Random(seed), Counter[str]()
    while True:
        ((kind, _, make),) = chance.choices(MIX, [share for _, share, _ in MIX])
        yield Job(kind, make(f"{kind}-{numbers[kind]}", numbers[kind]))
        numbers[kind] += 1


# --- one run ------------------------------------------------------------------------------------

Created = dict[str, list[str]]  # the names of the pods of each kind


async def one_run(server: Running, setting: str, args: argparse.Namespace) -> dict[str, Waits]:
    """The times of each kind, and of all kinds with a fit node."""
    async with (
        configured(setting, server, args.nodes) as config,
        Bindings.following(server.api) as bindings,
        scheduling(server, config),
    ):
        filled = args.nodes // args.pool
        low = (filling(f"low-{number}", number, "low") for number in range(filled))
        await all_of(map(bindings.create, low))
        await bindings.wait_for(filled, LAST_PATIENCE_S)
        created = await churn(server.api, bindings, args.minutes * 60)
        await bindings.wait_for(filled + sum(map(len, created.values())), LAST_PATIENCE_S)
        fit = [name for kind, names in created.items() if kind != PREEMPTION for name in names]
        found = {kind: bindings.waits(names) for kind, names in {**created, ALL_FIT: fit}.items()}
        await pods_gone(server)
        return found


async def churn(api: ApiServer, bindings: Bindings, seconds: float) -> Created:
    """Creates jobs at a steady rate of pods, and deletes each job after its lifetime."""
    created, began, count = defaultdict[str, list[str]](list), time.perf_counter(), 0
    async with asyncio.TaskGroup() as tasks:
        for job in jobs(seed=27):
            await asyncio.sleep(began + count / PODS_PER_S - time.perf_counter())
            if time.perf_counter() - began >= seconds:
                break
            tasks.create_task(life_of(api, bindings, job.pods))
            created[job.kind] += [made["metadata"]["name"] for made in job.pods]
            count += len(job.pods)
    return created


async def life_of(api: ApiServer, bindings: Bindings, pods: list[Tree]) -> None:
    """Leaves pods that are not bound by then: they are counted at the end."""
    await asyncio.gather(*map(bindings.create, pods))
    await asyncio.sleep(LIFETIME_S)
    for name in (made["metadata"]["name"] for made in pods):
        if bindings.is_bound(name):
            await deleted(api, name)


async def deleted(api: ApiServer, name: str) -> None:
    """Also if the API server has not answered in time."""
    for _ in range(TRIES):
        with contextlib.suppress(*ApiUnreachable):
            await api.delete(f"{PODS}/{name}")
            return
    raise TimeoutError(f"the API server has not deleted the pod {name} in {TRIES} tries")


# --- both runs ----------------------------------------------------------------------------------


async def compared(args: argparse.Namespace) -> list[Table]:
    found = dict[str, dict[str, Waits]]()
    async with cluster_of(args.nodes) as server:
        await settled(server, args.nodes, **AT_ONCE)
        for name, value in (("low", 0), ("high", 1000)):
            await server.put(PRIORITIES, {"metadata": {"name": name}, "value": value})
        for setting in args.ask:
            found[setting] = await one_run(server, setting, args)
    tables = [times(setting, waits) for setting, waits in found.items()]
    if {BARE, HEADROOM} <= found.keys():
        ratio = found[HEADROOM][ALL_FIT].p99 / found[BARE][ALL_FIT].p99
        tables.append(Table.of("ratios", {"p99 with a fit node, of the bare one's": ratio}))
    return tables


def times(setting: str, found: Mapping[str, Waits]) -> Table:
    rows = {
        kind: {
            "pods": float(waits.pods),
            "p50 s": waits.p50,
            "p99 s": waits.p99,
            "longest s": waits.longest,
            UNPLACED: float(waits.unplaced),
        }
        for kind, waits in found.items()
    }
    return Table(title=setting, rows=rows, zero={UNPLACED})


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--ask", nargs="*", choices=[BARE, HEADROOM], default=[BARE, HEADROOM])
    parser.add_argument(
        "--pool", type=int, default=10, help="one in so many nodes is filled at first"
    )


def measured(args: argparse.Namespace) -> list[Table]:
    require_programs()
    return asyncio.run(compared(args))
