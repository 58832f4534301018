"""Watches the cluster and publishes facts about its objects; no other component does."""

import asyncio
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from joulie_bus.events import WorkloadClass
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import background
from joulie_bus.runtime.vital_tasks import VitalTask, vital
from joulie_bus.streams.subjects import Subjects
from joulie_operator.facts.devices import DeviceObjects
from joulie_operator.facts.facts_from_objects import (
    ChangeFilter,
    GpuKind,
    Namespace,
    NamespaceKind,
    Node,
    NodeFilter,
    NodeKind,
    PodFilter,
    PodKind,
    class_of,
    logged_cards,
    logged_namespaces,
    logged_nodes,
    logged_pods,
    metadata_of,
)
from joulie_operator.facts.hardware_inventory import Inventory, hardware_filters
from joulie_operator.kube.api_client import ApiServer, Query
from joulie_operator.kube.object_cache import ObjectCache
from joulie_operator.observe.cluster_visibility import WatchStatuses
from joulie_operator.observe.fact_publisher import FactPublisher, Sink
from joulie_operator.observe.resource_watcher import Watcher, decoder_of
from joulie_operator.observe.watch_devices import DevicePublisher, DeviceWatch, Filters
from joulie_operator.resources.custom_resources import (
    GPUS,
    MANAGER,
    NODEHARDWARES,
    NODETWINS,
    Condition,
    Gpu,
    NodeHardware,
    NodeTwin,
    read_twin,
)
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.state.state import ClusterState
from joulie_projections.view.view import View

NODES, PODS, NAMESPACES = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"
# Finished pods draw no power. A pod that finishes leaves the selection, as if it were deleted.
ALIVE: Query = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
NAMESPACES_TIMEOUT_S = 10.0
CATCH_UP_TIMEOUT_S = 10.0
SHARED_CONDITIONS = 1000  # lists of conditions that NodeTwins share
K = TypeVar("K")
log = get_logger("watch")


class ObservedCluster(NamedTuple):
    """Caches of the objects that the applier writes, and the status of the watches."""

    nodes: ObjectCache[Node]
    twins: ObjectCache[NodeTwin]
    gpus: ObjectCache[Gpu]
    hardware: ObjectCache[NodeHardware]
    watches: WatchStatuses

    @classmethod
    def empty(cls) -> "ObservedCluster":
        return cls(
            ObjectCache[Node](lambda it: it.metadata, metadata_of),
            ObjectCache[NodeTwin](lambda it: it.metadata, reduced_twin),
            ObjectCache[Gpu](lambda it: it.metadata),
            ObjectCache[NodeHardware](lambda it: it.metadata),
            WatchStatuses(),
        )


def reduced_twin(twin: NodeTwin) -> NodeTwin:
    """Without other managers; most nodes have the conditions of many others, kept once."""
    metadata, status = twin.metadata.only_managed_by(MANAGER), twin.status
    if status is not None and status.conditions:
        status = replace(status, conditions=_shared(tuple(status.conditions)))
    return replace(twin, metadata=metadata, status=status)


@lru_cache(SHARED_CONDITIONS)
def _shared(conditions: tuple[Condition, ...]) -> list[Condition]:
    return list(conditions)


class _Publishing(NamedTuple):
    """Where the facts of all watchers go."""

    bus: Log
    producer: Producer

    def facts(self, *filters: ChangeFilter[K], also_to: Sink[K] | None = None) -> FactPublisher[K]:
        return FactPublisher(filters, self.bus, self.producer, also_to)


async def watch_cluster(
    api: ApiServer,
    bus: Log,
    subjects: Subjects,
    view: View,
    cluster: ObservedCluster,
    inventory: Inventory = Inventory(),  # noqa: B008
) -> None:
    """Watches all kinds until cancelled.

    Objects that the log contains and the cluster does not are published as gone. While no projector
    folds, the view lacks facts: facts are published meanwhile, also some that are stored already,
    and once the view is complete, everything is listed and compared again.
    """
    await view.wait_ready(30)
    is_complete = await catches_up(view)
    while True:
        cluster.watches.begin()
        watching = _watch(api, bus, subjects, view.cluster_state, cluster, inventory)
        async with background(watching, "watchers"):
            await cluster.watches.wait_listed()
            while not await catches_up(view):
                pass  # no plan is made from a view without the listed objects
            if is_complete:
                cluster.watches.is_view_current = True
                await asyncio.Event().wait()
        is_complete = True


async def _watch(
    api: ApiServer,
    bus: Log,
    subjects: Subjects,
    state: ClusterState,
    cluster: ObservedCluster,
    inventory: Inventory,
) -> None:
    """Compares with the state as it is now."""
    publishing = _Publishing(bus, Producer("operator-obs", subjects, time.time_ns))
    objects, names = DeviceObjects(), inventory.gpus
    classes = dict[str, WorkloadClass]()
    labelled, described = hardware_filters(inventory.catalog, state, _on_problem, names, objects)
    filters = Filters(
        NodeFilter(NodeKind(names.resources, objects), logged_nodes(state)),
        labelled,
        PodFilter(PodKind(classes, names.resources, objects), logged_pods(state)),
    )
    machines = _machine_watchers(api, publishing, state, cluster, filters, described)
    namespaces, pods = _pod_watchers(api, publishing, state, cluster, classes, filters.pods)
    publisher = DevicePublisher(objects, filters, bus, publishing.producer, state)
    devices = DeviceWatch(api, publisher)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(vital(VitalTask.WATCH, devices.run, "devices"))
        tasks.create_task(vital(VitalTask.WATCH, namespaces.run, namespaces.kind))
        await devices.wait_known()
        for watcher in machines:
            tasks.create_task(vital(VitalTask.WATCH, watcher.run, watcher.kind))
        await _wait_for_namespaces(namespaces.watch_status.listed)
        tasks.create_task(vital(VitalTask.WATCH, pods.run, pods.kind))


def _machine_watchers(
    api: ApiServer,
    publishing: _Publishing,
    state: ClusterState,
    cluster: ObservedCluster,
    filters: Filters,
    described: ChangeFilter[NodeHardware],
) -> Sequence[Watcher[Any]]:
    """Watchers of Nodes, NodeTwins, NodeHardwares and GPUs."""
    cards = ChangeFilter(GpuKind(), logged_cards(state))
    return (
        Watcher(
            api,
            NODES,
            decoder_of(Node),
            publishing.facts(filters.nodes, filters.hardware, also_to=cluster.nodes),
            watch_status=cluster.watches.nodes,
        ),
        Watcher(api, NODETWINS, read_twin, cluster.twins),
        Watcher(
            api,
            NODEHARDWARES,
            decoder_of(NodeHardware),
            publishing.facts(described, also_to=cluster.hardware),
        ),
        Watcher(api, GPUS, decoder_of(Gpu), publishing.facts(cards, also_to=cluster.gpus)),
    )


def _pod_watchers(
    api: ApiServer,
    publishing: _Publishing,
    state: ClusterState,
    cluster: ObservedCluster,
    classes: dict[str, WorkloadClass],
    pods: PodFilter,
) -> tuple[Watcher[Namespace], Watcher[Pod]]:
    """Watchers of Namespaces and Pods: namespaces set the default class of their pods."""
    namespaces = ChangeFilter(NamespaceKind(state.namespaces), logged_namespaces(state))
    return (
        Watcher(
            api,
            NAMESPACES,
            decoder_of(Namespace),
            publishing.facts(namespaces, also_to=_NamespaceClasses(classes)),
        ),
        Watcher(
            api,
            PODS,
            decoder_of(Pod),
            publishing.facts(pods),
            ALIVE,
            watch_status=cluster.watches.pods,
        ),
    )


def _on_problem(node: str, why: str) -> None:
    log.warning("label_unreadable", node=node, why=why)


async def catches_up(view: View) -> bool:
    """Waits until the view contains everything that was published before this call; False if that
    takes too long. Objects are otherwise compared with outdated facts.
    """
    if await view.includes_all_before(time.monotonic(), CATCH_UP_TIMEOUT_S):
        return True
    log.warning("not_caught_up", position=view.position, what="the view lacks facts")
    return False


async def _wait_for_namespaces(listed: asyncio.Event) -> None:
    """Pods are classified by their namespace, so namespaces come first, within a time limit."""
    try:
        async with asyncio.timeout(NAMESPACES_TIMEOUT_S):
            await listed.wait()
    except TimeoutError:
        log.warning("namespaces_unknown", what="pods are classified without their namespaces")


class _NamespaceClasses:
    """A sink that keeps the default class of each namespace. Changes affect pods seen later."""

    def __init__(self, classes: dict[str, WorkloadClass]) -> None:
        self._classes = classes

    def begin_list(self) -> None:
        self._classes.clear()

    async def add_listed(self, objects: Sequence[Namespace]) -> None:
        for namespace in objects:
            self._put("ADDED", namespace)

    async def end_list(self) -> None:
        pass

    async def apply_events(self, events: Sequence[tuple[str, Namespace]]) -> None:
        for kind, namespace in events:
            self._put(kind, namespace)

    def _put(self, kind: str, namespace: Namespace) -> None:
        default = class_of(namespace)
        if kind == "DELETED" or default is None:
            self._classes.pop(namespace.metadata.name, None)
        else:
            self._classes[namespace.metadata.name] = default
