"""Turns Kubernetes objects into facts, only when a relevant field changed."""

from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from joulie_bus.events import (
    Fact,
    GpuGone,
    GpuSeen,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
    WorkloadClass,
)
from joulie_bus.events.bounds import MOST_BYTES, MOST_CARDS, MOST_CPU_MILLI
from joulie_operator.facts.devices import DeviceObjects
from joulie_operator.resources.custom_resources import (
    AGENT_MANAGER,
    MANAGER,
    Gpu,
    GpuStatus,
    ObjectMeta,
)
from joulie_operator.resources.gpu_objects import AVAILABLE
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES, count_cards
from joulie_projections.pods.classify import CLASS_ANNOTATION
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_projections.pods.replacement import replaced_by
from joulie_projections.quantities import Quantity, parse
from joulie_projections.state.cards import UNKNOWN_HOLDER, CardState
from joulie_projections.state.state import ClusterState, NodeState, PodState

# Labels that facts contain: Joulie's own, the zone, those by which clouds mark spot nodes, and
# those that tell which nodes have short links between them.
_OUR_LABELS = (
    "joulie.io/",
    "cloud.google.com/gce-topology-",
    "cloud.google.com/gke-spot",
    "eks.amazonaws.com/capacityType",
    "karpenter.sh/capacity-type",
    "kubernetes.azure.com/scalesetpriority",
    "network.topology.nvidia.com/",
    "node.kubernetes.io/lifecycle",
    "nvidia.com/gpu.clique",
    "topology.k8s.aws/network-node-layer-",
    "topology.kubernetes.io/rack",
    "topology.kubernetes.io/zone",
)


class NodeSpec(msgspec.Struct, gc=False):
    unschedulable: bool | None = None


class Condition(msgspec.Struct, gc=False):
    type: str
    status: str


class NodeStatus(msgspec.Struct, gc=False):
    allocatable: dict[str, Quantity] | None = None
    conditions: list[Condition] | None = None


class Node(msgspec.Struct, gc=False):
    """The part of a Kubernetes Node that Joulie reads."""

    metadata: ObjectMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


_NO_SPEC, _NO_STATUS = NodeSpec(), NodeStatus()


def is_kept_label(name: str) -> bool:
    """Whether facts about nodes have the label."""
    return name.startswith(_OUR_LABELS)


def metadata_of(node: Node) -> Node:
    """The part of a Node that the applier compares; capacity is a fact of the log already."""
    return Node(node.metadata.only_managed_by(MANAGER), _NO_SPEC, _NO_STATUS)


class NamespaceMeta(ObjectMeta, frozen=True, kw_only=True):
    annotations: dict[str, str] | None = None


class Namespace(msgspec.Struct):
    """The part of a Kubernetes Namespace that Joulie reads."""

    metadata: NamespaceMeta


def class_of(namespace: Namespace) -> WorkloadClass | None:
    """The default class of the namespace's pods; None for unknown values."""
    match (namespace.metadata.annotations or {}).get(CLASS_ANNOTATION, "").strip():
        case "performance" | "standard" as workload:
            return workload
        case _:
            return None


O = TypeVar("O", contravariant=True)  # noqa: E741
K = TypeVar("K")


class ObjectKind(Protocol[O]):
    """Turns the objects of one kind into facts."""

    def key(self, seen: O, /) -> str: ...

    def version(self, seen: O, /) -> str: ...

    def fact(self, seen: O, /) -> Fact | None:
        """None if there is nothing to publish yet."""
        ...

    def gone(self, key: str, /) -> Fact | None: ...


class NodeKind:
    """`resources` are the names of GPU resources."""

    def __init__(
        self,
        resources: tuple[str, ...] = GPU_RESOURCES,
        devices: DeviceObjects | None = None,
    ) -> None:
        self._resources = resources
        self.devices = devices or DeviceObjects()
        self.allocatable: dict[str, int] = {}  # cards without those of DRA, by node

    def key(self, seen: Node, /) -> str:
        return seen.metadata.name

    def version(self, seen: Node, /) -> str:
        return seen.metadata.resource_version

    def fact(self, seen: Node, /) -> NodeSeen:
        allocatable = seen.status.allocatable or {}
        where = f"node {seen.metadata.name}"
        cpu = parse(allocatable.get("cpu", "0"), f"{where}, cpu")
        memory = parse(allocatable.get("memory", "0"), f"{where}, memory")
        labels = seen.metadata.labels or {}
        gpus = count_cards(allocatable, labels, self._resources, where)
        self.allocatable[seen.metadata.name] = min(gpus.cards, MOST_CARDS)
        return NodeSeen(
            node=seen.metadata.name,
            uid=seen.metadata.uid,
            labels={k: v for k, v in sorted(labels.items()) if is_kept_label(k)},
            ready=_is_ready(seen),
            schedulable=not seen.spec.unschedulable,
            cpu_milli=min(int(cpu * 1000), MOST_CPU_MILLI),
            memory_bytes=min(int(memory), MOST_BYTES),
            gpus=self.cards(seen.metadata.name),
            gpu_units=min(gpus.units, MOST_CARDS),
            gpu_vendor=gpus.vendor,
        )

    def gone(self, key: str, /) -> NodeGone:
        self.allocatable.pop(key, None)
        return NodeGone(node=key)

    def cards(self, node: str) -> int:
        """Cards that DRA gives out are not allocatable."""
        of_devices = self.devices.on_node(node)
        return max(self.allocatable.get(node, 0), of_devices.cards if of_devices else 0)


class PodKind:
    """`namespaces` maps the names of namespaces to the default class of their pods."""

    def __init__(
        self,
        namespaces: Mapping[str, str] | None = None,
        resources: tuple[str, ...] = GPU_RESOURCES,
        devices: DeviceObjects | None = None,
    ) -> None:
        self._namespaces = namespaces if namespaces is not None else {}
        self._resources = resources
        self.devices = devices or DeviceObjects()

    def key(self, seen: Pod, /) -> str:
        return seen.metadata.uid or ""

    def version(self, seen: Pod, /) -> str:
        return seen.metadata.resource_version or ""

    def fact(self, seen: Pod, /) -> Fact:
        phase = seen.status.phase if seen.status else None
        if phase in ("Succeeded", "Failed"):
            self.devices.forget_pod(seen.metadata.uid or "")
            return PodFinished(uid=seen.metadata.uid or "")
        namespace_class = self._namespaces.get(seen.metadata.namespace or "")
        ask = ask_of(seen, namespace_class, self._resources)
        if kind := replaced_by(seen):
            ask = replace(ask, ties=replace(ask.ties, replaced_by=kind))
        ask = self.devices.ask_with_devices(ask, seen)
        if seen.spec.node_name:
            return PodBound(pod=ask, node=seen.spec.node_name)
        return PodPending(pod=ask)

    def gone(self, key: str, /) -> PodGone:
        self.devices.forget_pod(key)
        return PodGone(uid=key)


def _is_ready(node: Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or [])


class NamespaceKind:
    """Publishes only namespaces that set a class, or that have set one before."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = set(known)

    def key(self, seen: Namespace, /) -> str:
        return seen.metadata.name

    def version(self, seen: Namespace, /) -> str:
        return seen.metadata.resource_version

    def fact(self, seen: Namespace, /) -> NamespaceSeen | None:
        name, default = seen.metadata.name, class_of(seen)
        if default is None and name not in self._known:
            return None
        self._known.add(name)
        return NamespaceSeen(namespace=name, workload=default)

    def gone(self, key: str, /) -> NamespaceSeen:
        return NamespaceSeen(namespace=key)


class GpuKind:
    """The facts of GPU resources: one per card."""

    def key(self, seen: Gpu, /) -> str:
        return seen.spec.uuid if seen.spec else ""

    def version(self, seen: Gpu, /) -> str:
        return seen.metadata.resource_version

    def fact(self, seen: Gpu, /) -> GpuSeen | None:
        if seen.spec is None or seen.metadata.is_managed_by(AGENT_MANAGER):
            return None  # it is incomplete, or was written for a fact of an agent
        status = seen.status or GpuStatus()
        return GpuSeen(
            uuid=seen.spec.uuid,
            node=seen.spec.node_name,
            model=seen.spec.model,
            total_mb=seen.spec.total_vram_mb,
            allocated_mb=status.allocated_vram_mb,
            healthy=status.healthy,
            nvlink_group=seen.spec.nvlink_group,
            owner=status.pod_uid,
            holder=_holder_of(status),
        )

    def gone(self, key: str, /) -> GpuGone:
        return GpuGone(uuid=key)


def _holder_of(status: GpuStatus) -> str:
    """The pod that holds the card, where the resource has no uid: some CRDs of this kind lack it.

    Any phase but Available means that the card is taken, even without the name of a pod.
    """
    if status.pod_uid:
        return ""
    if status.pod_name:
        return f"{status.pod_namespace or 'default'}/{status.pod_name}"
    return "" if status.phase in ("", AVAILABLE) else UNKNOWN_HOLDER


# --- facts that the log contains already ------------------------------------------------------
# After a restart the operator compares objects with these, and publishes only differences.


def logged_nodes(cluster_state: ClusterState) -> dict[str, Fact | None]:
    return {
        name: _seen_node(name, node) for name, node in cluster_state.nodes.items() if node.present
    }


def logged_pods(cluster_state: ClusterState) -> dict[str, Fact | None]:
    return {uid: _seen_pod(uid, pod) for uid, pod in cluster_state.pods.items()}


def logged_cards(cluster_state: ClusterState) -> dict[str, Fact | None]:
    """Only cards known from GPU resources: cards reported by an agent are not retracted here."""
    cards = {uuid: card for uuid, card in cluster_state.gpus.items() if card.source == "resource"}
    return {uuid: _seen_card(uuid, card) for uuid, card in cards.items()}


def logged_namespaces(cluster_state: ClusterState) -> dict[str, Fact | None]:
    default = cluster_state.namespaces.items()
    return {name: NamespaceSeen(namespace=name, workload=it) for name, it in default}


def _seen_node(name: str, node: NodeState) -> NodeSeen:
    return NodeSeen(
        node=name,
        uid=node.uid,
        labels=node.labels,
        ready=node.ready,
        schedulable=node.schedulable,
        cpu_milli=node.cpu_milli,
        memory_bytes=node.memory_bytes,
        gpus=node.gpus,
        gpu_units=node.gpu_units,
        gpu_vendor=node.gpu_vendor,
    )


def _seen_pod(uid: str, state: PodState) -> Fact:
    if state.finished:
        return PodFinished(uid=uid)
    return PodBound(pod=state.pod, node=state.node) if state.node else PodPending(pod=state.pod)


def _seen_card(uuid: str, card: CardState) -> GpuSeen:
    return GpuSeen(
        uuid=uuid,
        node=card.node,
        model=card.model,
        total_mb=card.total_mb,
        allocated_mb=card.allocated_mb,
        healthy=card.healthy,
        nvlink_group=card.nvlink_group,
        owner=card.owner,
        holder=card.holder,
    )


# --- facts that have been published -----------------------------------------------------------


class ChangeFilter(Generic[K]):
    """Passes on only facts that differ from the last published fact of their object."""

    def __init__(self, kind: ObjectKind[K], logged: Mapping[str, Fact | None]) -> None:
        """`logged` are the facts in the log, by key; None: published, with unknown content."""
        self._kind = kind
        self._last: dict[str, Fact | None] = dict(logged)
        self._versions: dict[str, str] = {}
        self._listed: set[str] = set()

    def seen(self, obj: K) -> Fact | None:
        """The fact to publish, if it changed. Raises BadQuantity for an unreadable quantity."""
        key, version = self._kind.key(obj), self._kind.version(obj)
        self._listed.add(key)
        if not key or (version and self._versions.get(key) == version):
            return None  # the same version again
        fact = self._kind.fact(obj)
        self._versions[key] = version
        if fact is None or self._last.get(key) == fact:
            return None
        self._last[key] = fact
        return fact

    def changed(self, key: str, fact: Fact | None) -> Fact | None:
        """The fact to publish about an unchanged object whose fact depends on others."""
        if fact is None or self._last.get(key) == fact:
            return None
        self._last[key] = fact
        return fact

    def note_published(self, fact: Fact) -> None:
        """Records a fact that another filter has passed on."""
        self._last[fact.key] = fact

    def deleted(self, obj: K) -> Fact | None:
        return self._forget(self._kind.key(obj))

    def begin_list(self) -> None:
        """A complete list follows."""
        self._listed = set()

    def missing(self) -> list[Fact]:
        """After a complete list: the facts about objects that it did not contain."""
        gone = sorted(set(self._last) - self._listed)
        return [fact for key in gone if (fact := self._forget(key)) is not None]

    def mark_unknown(self, facts: Iterable[Fact]) -> None:
        """It is unknown whether these were stored: their objects are published again."""
        for fact in facts:
            self._versions.pop(fact.key, None)
            self._last[fact.key] = None

    def seen_or_gone(self, obj: K) -> Fact | None:
        """As `seen`; an object without a fact is gone."""
        fact = self.seen(obj)
        key = self._kind.key(obj)
        if fact is None and key in self._last and self._kind.fact(obj) is None:
            return self._forget(key)
        return fact

    def _forget(self, key: str) -> Fact | None:
        self._versions.pop(key, None)
        if key not in self._last:
            return None
        del self._last[key]
        return self._kind.gone(key)


class NodeFilter(ChangeFilter[Node]):
    """What is published about a node depends on its devices, too."""

    def __init__(self, kind: NodeKind, logged: Mapping[str, Fact | None]) -> None:
        super().__init__(kind, logged)
        self._nodes = kind

    def renewed(self, node: str) -> Fact | None:
        """The fact to publish about a node whose devices have changed."""
        last = self._last.get(node)
        if not isinstance(last, NodeSeen) or node not in self._nodes.allocatable:
            return None
        return self.changed(node, replace(last, gpus=self._nodes.cards(node)))


class PodFilter(ChangeFilter[Pod]):
    """What is published about a pod depends on the devices that its claims have, too."""

    def __init__(self, kind: PodKind, logged: Mapping[str, Fact | None]) -> None:
        super().__init__(kind, logged)
        self._pods = kind

    def renewed(self, uid: str) -> Fact | None:
        """The fact to publish about a pod whose devices have changed."""
        pod = self._pods.devices.pod(uid)
        return self.changed(uid, self._pods.fact(pod)) if pod is not None else None
