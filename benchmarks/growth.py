"""Measures how the cost of each component grows with the nodes of a cluster.

    make bench NAME=growth [ARGS="--nodes 1000 5000 20000"]

All components run in one thread on a virtual clock, as in the drill that counts what a pod costs.
The API server, the broker and the network are in memory and cost nothing here; everything else is
the real code. Each node sends a reading in ten seconds, pods arrive 145 a second, and 500 nodes are
sent about each. A plan is made every ten seconds, six times as often as by default; the console has
an open page. The CPU of answers and plans is measured apart.

Processor times depend on the machine; how they grow does not.
"""

import argparse
import multiprocessing
from collections.abc import Mapping
from multiprocessing.connection import Connection as PipeEnd

from bindings import percentile
from grown import PLAN, VERBS, Grown, measure
from report import Table

APART = multiprocessing.get_context("spawn")
SMALLEST = {"nodes": [20], "pods": 40}
TOGETHER = "all of Joulie"


def one(nodes: int, pods: int) -> Grown:
    """In a process of its own, in which nothing is warm."""
    here, there = APART.Pipe(duplex=False)
    process = APART.Process(target=_measure, args=(nodes, pods, there))
    process.start()
    there.close()
    try:
        found: Grown = here.recv()
    finally:
        process.join()
    return found


def _measure(nodes: int, pods: int, to: PipeEnd) -> None:
    to.send(measure(nodes, pods))


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, nargs="*", default=[1000, 5000, 20000])
    parser.add_argument("--pods", type=int, default=400)


def measured(args: argparse.Namespace) -> list[Table]:
    found = dict[str, Grown]()
    for nodes in args.nodes:
        found[f"{nodes:,}"] = one(nodes, args.pods)
        print(f"{nodes:,} nodes measured", flush=True)
    return [
        Table(title="CPU ms per pod", rows=_rows(found, "per_pod"), signed=_components(found)),
        Table(title="at rest, % of a core", rows=_rows(found, "at_rest")),
        Table(title="answers and plans", rows={nodes: _times(of) for nodes, of in found.items()}),
    ]


def _rows(found: Mapping[str, Grown], what: str) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    for nodes, of in found.items():
        costs: Mapping[str, float] = getattr(of, what)
        rows[nodes] = {**costs, TOGETHER: sum(costs.values())}
    return rows


def _components(found: Mapping[str, Grown]) -> set[str]:
    """Differences, which may lie below zero where there are few pods; their sum may not."""
    return {name for of in found.values() for name in of.per_pod}


def _times(of: Grown) -> dict[str, float]:
    verbs = {
        f"{verb} ms, {name}": percentile(of.ms[verb], percent)
        for verb in VERBS
        for name, percent in (("p50", 50), ("p99", 99))
    }
    return verbs | {"plan s": percentile(of.ms[PLAN], 50) / 1000}
