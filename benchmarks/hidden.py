"""Measures how performance pods find few performance nodes among many.

    make kube && make bench NAME=hidden [ARGS="--nodes 5000 --few 50"]

etcd, kube-apiserver and kube-scheduler are real, with `joulie up` beside them. Only the last nodes
in the order of the names are planned for performance, and kube-scheduler samples the nodes as it
does by default: most samples hold only eco nodes. Pods of class performance are created among
others. The time is that from the first pod's creation to the last one's binding. A performance pod
on another node is counted.
"""

import argparse
import asyncio
import time
from collections import Counter
from functools import partial
from typing import NamedTuple

from bindings import Bindings
from extenders_beside import (
    AT_ONCE,
    DENSE,
    SPARSE,
    cluster_of,
    configured,
    node_with,
    require_programs,
    settled,
)
from report import Table

from joulie_bus.runtime.presets import HEADROOM
from kube_builders import pod
from kube_conditions import profiles
from kube_real import Running, Tree, all_of
from kube_scheduled import scheduling

SMALLEST = {"nodes": 20, "few": 5, "performance": 5, "others": 15}
PATIENCE_S = 300.0
PERFORMANCE = "performance"
KINDS = (PERFORMANCE, "other")
TOOK, UNPLACED = "all placed after s", "not placed"
ELSEWHERE = "performance pods on another node"


class Wanted(NamedTuple):
    nodes: int
    few: int  # nodes that are planned for performance
    performance: int  # pods
    others: int


def node_of(number: int, wanted: Wanted) -> Tree:
    """The last nodes have more cores, and are therefore planned for performance."""
    return node_with(number, cores=DENSE if number >= wanted.nodes - wanted.few else SPARSE)


def pods_of(wanted: Wanted) -> list[Tree]:
    """The performance pods are spread among the others."""
    count = wanted.performance + wanted.others
    every = count // wanted.performance
    return [a_pod(number, is_performance=number % every == 0) for number in range(count)]


def a_pod(number: int, *, is_performance: bool) -> Tree:
    kind = "performance" if is_performance else "other"
    made = pod(f"{kind}-{number}", workload=kind if is_performance else "", namespace="default")
    resources = {"requests": {"cpu": "500m", "memory": "1Mi"}}
    made["spec"]["containers"] = [{"name": "c", "image": "none", "resources": resources}]
    return made


async def placed(server: Running, wanted: Wanted, environ: dict[str, str]) -> Table:
    pods, nodes = pods_of(wanted), await profiles(server)
    print(f"{wanted.nodes} nodes: {dict(Counter(nodes.values()))}")
    async with (
        configured(HEADROOM, server, wanted.nodes, **environ) as config,
        Bindings.following(server.api) as bindings,
        scheduling(server, config),
    ):
        began = time.perf_counter()
        await all_of(map(bindings.create, pods))
        await bindings.wait_for(len(pods), PATIENCE_S)
        took_s = time.perf_counter() - began
        return Table(
            title="placed",
            rows={kind: row(kind, pods, bindings, nodes) | {TOOK: took_s} for kind in KINDS},
            zero={UNPLACED, ELSEWHERE},
        )


def row(kind: str, pods: list[Tree], bindings: Bindings, nodes: dict[str, str]) -> dict[str, float]:
    names = [name for each in pods if (name := each["metadata"]["name"]).startswith(kind)]
    waits = bindings.waits(names)
    classes = [nodes.get(bindings.node_of(name), "") for name in names]
    elsewhere = sum(of != PERFORMANCE for of in classes) if kind == PERFORMANCE else 0
    return {
        "pods": float(len(names)),
        "p50 s": waits.p50,
        "p99 s": waits.p99,
        "longest s": waits.longest,
        UNPLACED: float(waits.unplaced),
        ELSEWHERE: float(elsewhere),
    }


async def measure(wanted: Wanted) -> Table:
    environ = {"STATIC_HP_FRAC": str(wanted.few / wanted.nodes)}
    async with cluster_of(wanted.nodes, partial(node_of, wanted=wanted)) as server:
        await settled(server, wanted.nodes, **AT_ONCE, **environ)
        return await placed(server, wanted, environ)


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--few", type=int, default=50, help="performance nodes")
    parser.add_argument("--performance", type=int, default=500, help="pods")
    parser.add_argument("--others", type=int, default=2000, help="pods of other classes")


def measured(args: argparse.Namespace) -> list[Table]:
    require_programs()
    wanted = Wanted(args.nodes, args.few, args.performance, args.others)
    return [asyncio.run(measure(wanted))]
