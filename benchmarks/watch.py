"""Measures the operator's watches on a large cluster (start, idle, restart) and its applier.

    make bench NAME=watch [ARGS="--nodes 5000 --pods 150000"]

The API server is the one of the tests, in a process of its own on the same machine. The log is in
memory, so that only the watchers are measured.
"""

import argparse
import asyncio
import resource
import time
from pathlib import Path
from typing import Any, cast

from kube_served import folded, served
from report import Table

from bus_kit import VirtualClock, eco, noon, performance
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from joulie_bus.events import Fact, codec
from joulie_bus.log.producer import Producer
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_operator.desired.pending_writes import Now, WriteOptions, WritePlanner
from joulie_operator.facts.facts_from_objects import (
    ChangeFilter,
    Node,
    NodeKind,
    PodKind,
    logged_nodes,
    logged_pods,
)
from joulie_operator.kube.api_client import ApiServer as Api
from joulie_operator.observe.fact_publisher import FactPublisher
from joulie_operator.observe.resource_watcher import Watcher, decoder_of
from joulie_operator.observe.watch import ALIVE, NODES, PODS, ObservedCluster
from joulie_operator.resources.custom_resources import NodeTwin
from joulie_projections.fold.registry import evolve
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft
from kube_api import ApiServer
from kube_builders import joulie_server, node, pod

IDLE_S = 5.0
SMALLEST = {"nodes": 20, "pods": 60}
WALL, CPU, FOUND = "wall s", "CPU s", "facts or writes"
TEMPLATES = 2000  # deployments, jobs and other templates of the pods
SUBJECTS = Subjects("bench")


def padded(tree: dict[str, Any], size: int) -> dict[str, Any]:
    """As large as a real object; the operator does not use most of a Pod."""
    tree["metadata"]["annotations"] = {"rest": "x" * size}
    return tree


def cluster_of(nodes: int, pods: int) -> ApiServer:
    server = joulie_server()
    for number in range(nodes):
        server.put("nodes", padded(node(f"n{number:05}"), 6000))
    for number in range(pods):
        where = f"n{number % nodes:05}"
        made = padded(pod(f"p{number:06}", node=where), 4000)
        cpu = f"{number % TEMPLATES + 100}m"
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu, "memory": "1Gi"}}
        server.put("pods", made, "team")
    return server


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Meter:
    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), cpu_s()

    def row(self, found: int = 0) -> dict[str, float]:
        wall, cpu = time.perf_counter() - self.wall, cpu_s() - self.cpu
        return {WALL: wall, CPU: cpu, FOUND: float(found)}


async def watching(
    api: Api, log: MemoryLog, cluster_state: ClusterState, cluster: ObservedCluster
) -> list[Watcher[Any]]:
    """The watchers of nodes and pods."""
    producer = Producer("bench", SUBJECTS, time.time_ns)
    nodes = FactPublisher(
        [ChangeFilter(NodeKind(), logged_nodes(cluster_state))], log, producer, cluster.nodes
    )
    pods = FactPublisher([ChangeFilter(PodKind(), logged_pods(cluster_state))], log, producer)
    watchers: list[Watcher[Any]] = [
        Watcher(api, NODES, decoder_of(Node), nodes),
        Watcher(api, PODS, decoder_of(Pod), pods, ALIVE),
    ]
    return watchers


async def started(watchers: list[Watcher[Any]]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    await asyncio.gather(*(watcher.watch_status.listed.wait() for watcher in watchers))
    return tasks


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def measure(kubeconfig: Path, nodes: int) -> dict[str, dict[str, float]]:
    broker, rows = MemoryBroker(SUBJECTS, VirtualClock()), dict[str, dict[str, float]]()
    log, cluster_state = MemoryLog(broker), ClusterState()
    async with Api.of(kubeconfig) as api:
        meter = Meter()
        tasks = await started(await watching(api, log, cluster_state, ObservedCluster.empty()))
        published = (await log.state(Stream.OBS)).last
        rows["first start, all facts published"] = meter.row(published)

        meter = Meter()
        await asyncio.sleep(IDLE_S)
        rows["idle, two watches open"] = meter.row()
        await ended(tasks)

        draft = Draft(cluster_state)
        for record in broker.stream(Stream.OBS).records:
            fact = codec.decoded(record.data, "")
            evolve(draft, cast(Fact, fact), record.at)
        draft.commit()
        meter, cluster = Meter(), ObservedCluster.empty()
        tasks = await started(await watching(api, log, cluster_state, cluster))
        news = (await log.state(Stream.OBS)).last - published
        rows["restart, compared with the log"] = meter.row(news)
        await ended(tasks)
    return rows | applied(cluster_state, cluster, nodes)


def applied(
    cluster_state: ClusterState, cluster: ObservedCluster, nodes: int
) -> dict[str, dict[str, float]]:
    """Measures how the applier finds its writes, without the writes themselves."""
    rows = dict[str, dict[str, float]]()
    options = WriteOptions({"joulie.io/managed": "true"}, 60)
    planner = WritePlanner(cluster.nodes, cluster.twins, options)
    names = sorted(cluster_state.nodes)
    folded(cluster_state, map(eco, names), noon())
    meter = Meter()
    found = planner.pending_writes(cluster_state, Now(0.0, noon()))
    rows["applier: every node is new"] = meter.row(len(found))
    for node_writes in found:
        spec = next(step.spec for step in node_writes.steps if step.spec)
        twin = NodeTwin(metadata=cluster.nodes.get(node_writes.name).metadata, spec=spec)  # type: ignore[union-attr]
        status = planner.status(twin, cluster_state.nodes[node_writes.name], noon())
        cluster.twins.put(NodeTwin(metadata=twin.metadata, spec=spec, status=status))
    planner.pending_writes(cluster_state, Now(0.1, noon()))
    meter, looks = Meter(), 20
    for number in range(looks):
        planner.pending_writes(cluster_state, Now(0.2 + number / 100, noon()))
    rows[f"applier: {looks} looks, nothing changed"] = meter.row()
    folded(cluster_state, map(performance, names[:: max(1, nodes // 100)]), noon())
    meter = Meter()
    found = planner.pending_writes(cluster_state, Now(1.0, noon()))
    rows["applier: a hundred plans"] = meter.row(len(found))
    return rows


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)


def measured(args: argparse.Namespace) -> list[Table]:
    with served(lambda: cluster_of(args.nodes, args.pods)) as server:
        rows = asyncio.run(measure(server.kubeconfig, args.nodes))
    return [Table(title="watches and applier", rows=rows, zero={FOUND})]
