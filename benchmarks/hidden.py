"""Measures how performance pods find few performance nodes among many.

    make kube && .venv/bin/python benchmarks/hidden.py [--nodes 5000] [--few 50]

etcd, kube-apiserver and kube-scheduler are real, with `joulie up` beside them. Only the last nodes
in the order of the names are planned for performance, and kube-scheduler samples the nodes as it
does by default: most samples hold only eco nodes. 500 pods of class performance are created among
2,000 others. The time is that from the first pod's creation to the last one's binding. A
performance pod on another node is counted.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit"))  # starts the real programs
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kit/kube"))
sys.path.insert(0, str(Path(__file__).parent / "kit"))

from bindings import Bindings, Waits
from extenders_beside import (
    DENSE,
    OURS,
    SPARSE,
    cluster_of,
    configured,
    node_with,
    require_programs,
)

from kube_builders import pod
from kube_conditions import profiles
from kube_real import ProgramMissing, Running, Tree, all_of
from kube_scheduled import scheduling

PATIENCE_S = 300.0
BUDGET_S = 60.0


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


async def placed(server: Running, wanted: Wanted, environ: dict[str, str]) -> float:
    """The seconds until all pods are bound, or PATIENCE_S."""
    pods, nodes = pods_of(wanted), await profiles(server)
    print(f"{wanted.nodes} nodes: {dict(Counter(nodes.values()))}")
    async with (
        configured(OURS, server, wanted.nodes, **environ) as config,
        Bindings.following(server.api) as bindings,
        scheduling(server, config),
    ):
        began = time.perf_counter()
        await all_of(map(bindings.create, pods))
        await bindings.wait_for(len(pods), PATIENCE_S)
        took_s = time.perf_counter() - began
        for kind in ("performance", "other"):
            names = [name for each in pods if (name := each["metadata"]["name"]).startswith(kind)]
            print(line(kind, bindings.waits(names), len(names)))
            print(
                f"  by class: {dict(Counter(nodes.get(bindings.node_of(n), '-') for n in names))}"
            )
        return took_s


def line(kind: str, waits: Waits, pods: int) -> str:
    times = f"p50 {waits.p50:>6.2f}  p99 {waits.p99:>6.2f}  longest {waits.longest:>6.2f} s"
    return f"{kind:<14}{pods:>6} pods   {times}   not placed {waits.unplaced}"


async def measure(wanted: Wanted) -> None:
    environ = {"STATIC_HP_FRAC": str(wanted.few / wanted.nodes)}
    make = partial(node_of, wanted=wanted)
    async with cluster_of(wanted.nodes, True, make, **environ) as server:
        took_s = await placed(server, wanted, environ)
        print(f"all placed after {took_s:.1f} s (budget {BUDGET_S:.0f})")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--nodes", type=int, default=5000)
    options.add_argument("--few", type=int, default=50, help="performance nodes")
    args = options.parse_args()
    try:
        require_programs()
    except ProgramMissing as missing:
        print(f"not measured: {missing}")
        return
    asyncio.run(measure(Wanted(args.nodes, args.few, performance=500, others=2000)))


if __name__ == "__main__":
    main()
