"""Runs a mixed workload on a real kube-scheduler, with a bare extender and with Joulie.

    make kube && .venv/bin/python benchmarks/workload.py [--minutes 30] [--nodes 5000]

Jobs of several kinds are created at a steady rate, and their pods are deleted after a while, as in
scheduler_perf. The mix:

    standard     one pod without preferences
    performance  one pod of class performance
    eco-only     one pod that selects eco nodes by their label
    gang         eight pods at once, at most one on a node (required anti-affinity)
    spread       four pods that prefer different nodes (topology spread)
    preemption   one pod of high priority, for a node that a pod of low priority fills

A fit node exists at any time for every kind but the last, which has to evict a pod first. For each
kind this prints p50, p99 and the longest time from creation to binding, then the ratio of the p99
of both extenders over all kinds with a fit node. A pod that is still pending at the end is counted
with the time that it has waited. The labels of the nodes are those of Joulie's plan in both runs.
Two minutes are the default, for a first look.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit"))  # starts the real programs
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit/kube"))
sys.path.insert(0, str(Path(__file__).parent / "kit"))

from bindings import Bindings, Waits
from extenders_beside import (
    BARE,
    OURS,
    cluster_of,
    configured,
    node_name,
    pods_gone,
    require_programs,
)

from joulie_operator.kube.api_client import ApiServer, ApiUnreachable
from kube_builders import pod
from kube_conditions import PODS
from kube_real import ProgramMissing, Running, all_of
from kube_scheduled import scheduling

PODS_PER_S = 40
LIFETIME_S = 40.0  # of a pod, after which it is deleted
TRIES = 5
LAST_PATIENCE_S = 30.0  # for the pods that are pending at the end
POOL = 10  # one in so many nodes is filled by a pod of low priority
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PREEMPTION, ALL_FIT = "preemption", "with a fit node"
HOST = "kubernetes.io/hostname"
Tree = dict[str, Any]


class Wanted(NamedTuple):
    nodes: int
    minutes: float
    settings: list[str]


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


async def one_run(server: Running, setting: str, wanted: Wanted) -> Waits:
    """Prints the times of each kind; returns those of all kinds with a fit node."""
    async with (
        configured(setting, server, wanted.nodes) as config,
        Bindings.following(server.api) as bindings,
        scheduling(server, config),
    ):
        filled = wanted.nodes // POOL
        low = (filling(f"low-{number}", number, "low") for number in range(filled))
        await all_of(map(bindings.create, low))
        await bindings.wait_for(filled, LAST_PATIENCE_S)
        created = await churn(server.api, bindings, wanted.minutes * 60)
        await bindings.wait_for(filled + sum(map(len, created.values())), LAST_PATIENCE_S)
        fit = [name for kind, names in created.items() if kind != PREEMPTION for name in names]
        for kind, names in {**created, ALL_FIT: fit}.items():
            print(line(setting, kind, bindings.waits(names), len(names)), flush=True)
        await pods_gone(server)
        return bindings.waits(fit)


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


def line(setting: str, kind: str, waits: Waits, pods: int) -> str:
    times = f"p50 {waits.p50:>6.3f}  p99 {waits.p99:>6.3f}  longest {waits.longest:>7.3f} s"
    return f"{setting:<8}{kind:<18}{pods:>7} pods   {times}   not placed {waits.unplaced}"


# --- both runs ----------------------------------------------------------------------------------


async def compare(wanted: Wanted) -> None:
    found = dict[str, Waits]()
    async with cluster_of(wanted.nodes, with_joulie=True) as server:
        for name, value in (("low", 0), ("high", 1000)):
            await server.put(PRIORITIES, {"metadata": {"name": name}, "value": value})
        for setting in wanted.settings:
            found[setting] = await one_run(server, setting, wanted)
    if {BARE, OURS} <= found.keys():
        ratio = found[OURS].p99 / found[BARE].p99
        print(f"\np99 with a fit node, of the bare one's: {ratio:.2f}")
        print(f"longest with a fit node: {found[OURS].longest:.2f} s")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--nodes", type=int, default=5000)
    options.add_argument("--minutes", type=float, default=2)
    options.add_argument("--ask", nargs="*", choices=[BARE, OURS], default=[BARE, OURS])
    args = options.parse_args()
    try:
        require_programs()
    except ProgramMissing as missing:
        print(f"not measured: {missing}")
        return
    asyncio.run(compare(Wanted(args.nodes, args.minutes, args.ask)))


if __name__ == "__main__":
    main()
