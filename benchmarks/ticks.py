"""Measures the CPU time of one tick of the operator when nothing has changed.

    make bench NAME=ticks

A tick is a plan, and the comparison of every node and NodeTwin with its desired state. The figures
are medians; the cost per node is comparable between machines, times are not. Then it measures
watchers and applier over HTTP. The API server is the one of the tests, in a process of its own, and
counts the writes.
"""

import argparse
import asyncio
import statistics
import time
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from kube_served import ServedCluster, folded, served
from report import Table

from bus_kit import (
    bound,
    eco,
    hardware,
    node_seen,
    noon,
    performance,
    records,
)
from joulie_bus.events import AnyEvent, Fact
from joulie_bus.runtime.settings import Source
from joulie_bus.runtime.tasks import background
from joulie_operator.apply.writer import Applier
from joulie_operator.cluster_settings import ApplierSettings
from joulie_operator.desired.pending_writes import Now, WritePlanner
from joulie_operator.facts.facts_from_objects import Node
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe.resource_watcher import Watcher, decoder_of
from joulie_operator.observe.watch import NODES, ObservedCluster
from joulie_operator.planning.policies import BUILT_IN
from joulie_operator.planning.reconcile import LoadedPolicy, Plan, PlanBasis, plan
from joulie_operator.planning.rules import Rules
from joulie_operator.resources.custom_resources import NODETWINS, read_twin
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from kube_builders import joulie_server
from kube_settled import OPTIONS, SELECTOR, settle

RUNS = 5
SMALLEST = {"sizes": [20, 40], "http_nodes": 20, "changed": 5}
PODS_PER_NODE = 30  # 150,000 pods on 5,000 nodes
RESTS_S = 5.0
WRITES = "writes"
RULES = Rules(policy="queue_aware_v1")


def happens(cluster_state: ClusterState, events: list[AnyEvent], name: str, at_s: float) -> None:
    draft = Draft(cluster_state)
    fold(draft, records(*events, name=name, start_s=at_s, step_s=0), 0)
    draft.commit()


def look(cluster_state: ClusterState, now_s: float) -> Plan:
    return plan(
        cluster_state, LoadedPolicy(BUILT_IN[RULES.policy]), RULES, PlanBasis(1, noon(now_s))
    )


def settled(nodes: int) -> ClusterState:
    """A cluster in its desired state. Every tenth node runs performance pods."""
    cluster_state = ClusterState()
    names = [f"node-{number:05d}" for number in range(nodes)]
    seen: list[AnyEvent] = []
    for at, name in enumerate(names):
        seen += [node_seen(name, gpus=at % 4), hardware(name, cores=32 + at % 160, gpus=at % 4)]
        seen += [
            bound(f"{name}-{pod}", name, performance=at % 10 == 0) for pod in range(PODS_PER_NODE)
        ]
    happens(cluster_state, seen, "watcher", 0)
    for turn in (1, 2, 3):
        happens(
            cluster_state, list(look(cluster_state, 60 * turn).events), f"plan-{turn}", 60 * turn
        )
    return cluster_state


class Cost(NamedTuple):
    """Seconds of CPU time."""

    plan: float
    compare: float  # each node and NodeTwin in full, within a minute
    glance: float  # the comparisons in between, twice a second

    @property
    def tick(self) -> float:
        return self.plan + self.compare


def cost(cluster_state: ClusterState) -> Cost:
    seen = settle(joulie_server(), cluster_state, noon(600))
    times: list[Cost] = []
    for _ in range(RUNS):
        planner = WritePlanner(seen.nodes, seen.twins, OPTIONS)
        marks = [time.process_time()]
        assert not look(cluster_state, 600).changes
        marks.append(time.process_time())
        assert not planner.pending_writes(cluster_state, Now(0.0, noon(600)))
        marks.append(time.process_time())
        assert not planner.pending_writes(cluster_state, Now(0.5, noon(600)))
        marks.append(time.process_time())
        times.append(Cost(*(after - before for before, after in pairwise(marks))))
    return Cost(*(statistics.median(each) for each in zip(*times, strict=True)))


# --- over HTTP --------------------------------------------------------------------------------


class Held(NamedTuple):
    """A view that does not change by itself."""

    cluster_state: ClusterState


async def beside(
    cluster_state: ClusterState, server: ServedCluster, changed: int
) -> dict[str, dict[str, float]]:
    cluster, rows = ObservedCluster.empty(), dict[str, dict[str, float]]()
    settings = Source.of(APPLY_RATE="10000").load(ApplierSettings)
    async with Api.of(server.kubeconfig) as api:
        applier = Applier(api, Held(cluster_state), cluster, SELECTOR, settings)
        began = time.process_time()
        async with (
            background(Watcher(api, NODES, decoder_of(Node), cluster.nodes).run(), "nodes"),
            background(Watcher(api, NODETWINS, read_twin, cluster.twins).run(), "twins"),
            background(applier.run(), "apply"),
        ):
            await cluster.twins.complete.wait()
            await asyncio.sleep(RESTS_S)
            rows["start: all read, all compared"] = row(began, server.writes())
            began, before = time.process_time(), server.writes()
            await asyncio.sleep(RESTS_S)
            rows[f"{RESTS_S:g} s in which nothing changes"] = row(began, server.writes() - before)
            began = time.process_time()
            names = list(cluster_state.nodes)[:changed]
            facts = [turned(cluster_state, name) for name in names]
            folded(cluster_state, facts, time.time_ns())
            while (server.writes() - before)["create", "events"] < changed:
                await asyncio.sleep(0.2)
            rows[f"{changed} nodes change their class"] = row(began, server.writes() - before)
    return rows


def turned(cluster_state: ClusterState, name: str) -> Fact:
    return performance(name) if cluster_state.nodes[name].profile == "eco" else eco(name)


def row(began: float, wrote: Counter[tuple[str, str]]) -> dict[str, float]:
    return {"CPU s": time.process_time() - began, WRITES: float(wrote.total())}


def over_http(nodes: int, changed: int) -> Table:
    cluster_state, made = settled(nodes), joulie_server()
    settle(made, cluster_state, time.time_ns())
    with served(lambda: made) as server:
        rows = asyncio.run(beside(cluster_state, server, changed))
    return Table(title=f"{nodes} nodes and NodeTwins over HTTP", rows=rows, zero={WRITES})


def ticks(sizes: list[int]) -> Table:
    rows = {}
    for nodes in sizes:
        cluster_state = settled(nodes)
        each = cost(cluster_state)
        rows[f"{nodes} nodes, {len(cluster_state.pods)} pods"] = {
            "plan, ms": each.plan * 1e3,
            "compare, ms": each.compare * 1e3,
            "tick, ms": each.tick * 1e3,
            "µs a node": each.tick / nodes * 1e6,
            "in between, ms": each.glance * 1e3,
        }
    return Table(title="ticks", rows=rows)


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1_000, 5_000, 20_000])
    parser.add_argument("--http-nodes", type=int, default=5_000)
    parser.add_argument("--changed", type=int, default=100, help="nodes")


def measured(args: argparse.Namespace) -> list[Table]:
    return [ticks(args.sizes), over_http(args.http_nodes, args.changed)]
