"""A cluster as it was listed once: nodes, and pods with what ties each of them to its node."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from joulie_bus.errors import NotTried
from joulie_bus.events import HardwareDiscovered, NodeSeen, PodAsk, PodBound, PodPending
from joulie_operator.facts import facts_from_objects
from joulie_operator.facts.facts_from_objects import NodeKind, PodKind
from joulie_operator.planning.eligible import RESERVED_LABEL
from joulie_projections.hardware.catalog import Catalog, from_labels
from joulie_projections.pods.classify import exemption
from joulie_projections.pods.replacement import DO_NOT_DISRUPT, controller_of
from joulie_simulator.kube_scheduler.objects import Node, Pod
from joulie_simulator.kube_scheduler.selectors import EVERYTHING, NOTHING, Selector
from joulie_simulator.kube_scheduler.terms import Asked, Namespaces, asked
from joulie_simulator.kube_scheduler.unknown import unknown_of

CONTROL_PLANE = ("control-plane", "etcd", "master")
_ROLE = "node-role.kubernetes.io/"
_NO_SCALE_DOWN = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
_SPREAD_BY_DEFAULT = ("ReplicaSet", "ReplicationController", "StatefulSet")
_STAYS_WITH_NODE = ("daemonset", "mirror")


S = TypeVar("S", bound=msgspec.Struct)


class Listed(NamedTuple):
    """What an API server listed; None: the account may not list it."""

    nodes: Sequence[bytes]
    pods: Sequence[bytes]
    namespaces: Mapping[str, Mapping[str, str]] | None  # labels by name
    stays: Mapping[str, str]  # why a pod may not be moved, by its uid
    knows_budgets: bool
    minor: int  # of the version of Kubernetes, 1.MINOR; 0: not known


class MomentNode(NamedTuple):
    seen: NodeSeen
    hardware: HardwareDiscovered | None
    left_out: str  # why it is no candidate for sleep; empty if it is one


class MomentPod(NamedTuple):
    name: str  # namespace/name
    asked: Asked
    ask: PodAsk
    node: str  # empty: it waits for one
    created: str
    goes_with_node: bool  # and does not hold it awake
    stays: str  # why it may not be moved; empty if it may
    unknown: Sequence[str]  # what of it is not modelled

    @property
    def order(self) -> tuple[str, str]:
        return self.created, self.ask.uid


class Moment(NamedTuple):
    nodes: Sequence[MomentNode]
    models: Sequence[Node]
    pods: Sequence[MomentPod]
    knows_namespaces: bool
    knows_budgets: bool
    minor: int

    @property
    def candidates(self) -> list[str]:
        return [node.seen.node for node in self.nodes if not node.left_out]


def moment_of(listed: Listed, catalog: Catalog) -> Moment:
    """Raises NotTried for an object that cannot be read."""
    models = [_read(raw, Node, "a node") for raw in listed.nodes]
    facts = [_read(raw, facts_from_objects.Node, "a node") for raw in listed.nodes]
    kind = NodeKind()
    nodes = [
        _node(kind.fact(fact), model, catalog) for fact, model in zip(facts, models, strict=True)
    ]
    return Moment(
        nodes,
        models,
        _pods(listed, {node.seen.node for node in nodes}),
        listed.namespaces is not None,
        listed.knows_budgets,
        listed.minor,
    )


def _read(raw: bytes, shape: type[S], what: str) -> S:
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotTried(f"{what} of the list cannot be read: {error}") from error


# --- nodes ------------------------------------------------------------------------------------


def _node(seen: NodeSeen, model: Node, catalog: Catalog) -> MomentNode:
    labels, annotations = model.metadata.labels or {}, model.metadata.annotations or {}
    described = msgspec.structs.replace(seen, labels=labels)
    return MomentNode(
        seen, from_labels(described, catalog), _why_left_out(seen, labels, annotations)
    )


def _why_left_out(seen: NodeSeen, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    if any(f"{_ROLE}{role}" in labels for role in CONTROL_PLANE):
        return "it belongs to the control plane"
    if not seen.ready:
        return "it is not ready"
    if not seen.schedulable:
        return "it is cordoned"
    if labels.get(RESERVED_LABEL) == "true":
        return f"its label {RESERVED_LABEL} is true"
    for name in (_NO_SCALE_DOWN, DO_NOT_DISRUPT):
        if annotations.get(name) == "true":
            return f"its annotation {name} is true"
    return ""


# --- pods -------------------------------------------------------------------------------------


def _pods(listed: Listed, nodes: Collection[str]) -> list[MomentPod]:
    """Without pods that have ended, and those of nodes that are not in the list."""
    models = [_read(raw, Pod, "a pod") for raw in listed.pods]
    kind = PodKind()
    facts = [kind.fact(model) for model in models]
    known_nodes = {"", *nodes}
    live = [
        (model, fact.pod)
        for model, fact in zip(models, facts, strict=True)
        if isinstance(fact, PodBound | PodPending) and (model.spec.node_name or "") in known_nodes
    ]
    defaults = default_selectors([model for model, _ in live])
    known = listed.namespaces is not None
    return [
        MomentPod(
            f"{ask.namespace}/{ask.name}",
            _placeable(model, listed.namespaces or {}, defaults.get(_owner(model), NOTHING)),
            ask,
            model.spec.node_name or "",
            model.metadata.creation_timestamp or "",
            exemption(model) in _STAYS_WITH_NODE,
            listed.stays.get(ask.uid, ""),
            unknown_of(model, knows_namespaces=known),
        )
        for model, ask in live
    ]


def _placeable(model: Pod, namespaces: Namespaces, default: Selector) -> Asked:
    """As it was before it had a node."""
    return asked(model, namespaces, default)._replace(node_name="")


def _owner(pod: Pod) -> str:
    """The controller by whose pods kube-scheduler spreads; empty if there is none."""
    controller = controller_of(pod)
    if controller is None or controller.kind not in _SPREAD_BY_DEFAULT:
        return ""
    return next(
        (each.uid or "" for each in pod.metadata.owner_references or () if each.controller), ""
    )


def default_selectors(pods: Sequence[Pod]) -> dict[str, Selector]:
    """By controller: the labels that all of its pods have. kube-scheduler takes the selector of the
    controller, which selects the same pods."""
    shared: dict[str, set[tuple[str, str]]] = defaultdict(set)
    seen = set[str]()
    for pod in pods:
        owner, labels = _owner(pod), set((pod.metadata.labels or {}).items())
        shared[owner] = shared[owner] & labels if owner in seen else labels
        seen.add(owner)
    shared.pop("", None)
    return {owner: EVERYTHING.and_equal(sorted(labels)) for owner, labels in shared.items()}
