"""Watches the cluster and tells the log what it sees: the only source of facts about objects."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from joulie_bus.errors import ViewBehind
from joulie_bus.events import WorkloadClass
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.log import Log
from joulie_bus.streams.producer import Producer
from joulie_bus.streams.subjects import Subjects
from joulie_operator.kube.api_client import ApiServer, Query
from joulie_operator.kube.custom_resources import (
    GPUS,
    NODEHARDWARES,
    NODETWINS,
    Gpu,
    NodeHardware,
    NodeTwin,
    read_twin,
)
from joulie_operator.kube.object_cache import Mirror
from joulie_operator.observe.cluster_visibility import Eyes
from joulie_operator.observe.fact_publisher import Facts, Sink
from joulie_operator.observe.facts_from_objects import (
    GpuKind,
    Namespace,
    NamespaceKind,
    Node,
    NodeKind,
    PodKind,
    Told,
    believed_cards,
    believed_namespaces,
    believed_nodes,
    believed_pods,
    class_of,
)
from joulie_operator.observe.hardware_inventory import Inventory, machines_told
from joulie_operator.observe.resource_watcher import Watcher, reader
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.view.view import View

NODES, PODS, NAMESPACES = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"
# Finished pods draw nothing. One that finishes leaves the selection, which looks like its end.
ALIVE: Query = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
NAMESPACES_PATIENCE_S = 10.0
SETTLED_S = 10.0
K = TypeVar("K")
log = get_logger("watch")


class Cluster(NamedTuple):
    """What is seen of it: the objects that the applier writes, and whether plans may rest on it."""

    nodes: Mirror[Node]
    twins: Mirror[NodeTwin]
    gpus: Mirror[Gpu]
    eyes: Eyes

    @classmethod
    def unseen(cls) -> "Cluster":
        return cls(
            Mirror[Node](lambda it: it.metadata),
            Mirror[NodeTwin](lambda it: it.metadata),
            Mirror[Gpu](lambda it: it.metadata),
            Eyes(),
        )


async def watch_cluster(
    api: ApiServer,
    bus: Log,
    subjects: Subjects,
    view: View,
    cluster: Cluster,
    inventory: Inventory = Inventory(),  # noqa: B008
) -> None:
    """All kinds. What the log believes in and the cluster does not show is told as gone."""
    await caught_up(view)
    producer = Producer("operator-obs", subjects, time.time_ns)
    cluster_state, classes = view.cluster_state, dict[str, WorkloadClass]()
    catalog, gpus = inventory

    def facts(*told: Told[K], beside: Sink[K] | None = None) -> Facts[K]:
        return Facts(told, bus, producer, beside)

    labelled, described = machines_told(catalog, cluster_state, _complain, gpus)
    spaces = Told(NamespaceKind(cluster_state.namespaces), believed_namespaces(cluster_state))
    namespaces = Watcher(
        api, NAMESPACES, reader(Namespace), facts(spaces, beside=_Classes(classes))
    )
    seen = Told(NodeKind(gpus.resources), believed_nodes(cluster_state))
    node_facts = facts(seen, labelled, beside=cluster.nodes)
    pod_facts = facts(Told(PodKind(classes, gpus.resources), believed_pods(cluster_state)))
    card_facts = facts(Told(GpuKind(), believed_cards(cluster_state)), beside=cluster.gpus)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            Watcher(api, NODES, reader(Node), node_facts, eye=cluster.eyes.nodes).run()
        )
        tasks.create_task(Watcher(api, NODETWINS, read_twin, cluster.twins).run())
        tasks.create_task(Watcher(api, NODEHARDWARES, reader(NodeHardware), facts(described)).run())
        tasks.create_task(Watcher(api, GPUS, reader(Gpu), card_facts).run())
        tasks.create_task(namespaces.run())
        await _patiently(namespaces.eye.listed)
        tasks.create_task(
            Watcher(api, PODS, reader(Pod), pod_facts, ALIVE, eye=cluster.eyes.pods).run()
        )
        await cluster.eyes.listed()
        await caught_up(view)
        cluster.eyes.is_folded = True


def _complain(node: str, why: str) -> None:
    log.warning("label_unreadable", node=node, why=why)


async def caught_up(view: View) -> None:
    """Until the view holds what was said before now, by a former operator or by this one.

    Otherwise an object that is just what it was before those words would not be told again, and a
    plan would rest on what was known before them.
    """
    await view.wait_ready(30)
    before, deadline = view.last_beat, time.monotonic() + SETTLED_S
    while time.monotonic() < deadline:
        beat = view.last_beat
        if beat is not None and beat is not before and beat.lag == 0:
            with contextlib.suppress(ViewBehind):
                await view.wait_for(beat.position, SETTLED_S)
                return
        await asyncio.sleep(0.05)
    log.warning("not_caught_up", what="going on with what the view holds", position=view.position)


async def _patiently(listed: asyncio.Event) -> None:
    """Pods are classified by their namespace, so namespaces come first; but not at any price."""
    try:
        async with asyncio.timeout(NAMESPACES_PATIENCE_S):
            await listed.wait()
    except TimeoutError:
        log.warning("namespaces_unknown", what="pods are classified without them")


class _Classes:
    """The class that each namespace gives to its pods. What changes counts for pods seen later."""

    def __init__(self, classes: dict[str, WorkloadClass]) -> None:
        self._classes = classes

    def begin(self) -> None:
        self._classes.clear()

    async def listed(self, things: Sequence[Namespace]) -> None:
        for namespace in things:
            self._put("ADDED", namespace)

    async def whole(self) -> None:
        pass

    async def happened(self, events: Sequence[tuple[str, Namespace]]) -> None:
        for kind, namespace in events:
            self._put(kind, namespace)

    def _put(self, kind: str, namespace: Namespace) -> None:
        given = class_of(namespace)
        if kind == "DELETED" or given is None:
            self._classes.pop(namespace.metadata.name, None)
        else:
            self._classes[namespace.metadata.name] = given
