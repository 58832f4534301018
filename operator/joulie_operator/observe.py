"""From Kubernetes objects to facts: what matters of them, and only when it changed. Pure."""

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from joulie_bus.events import (
    Fact,
    NodeGone,
    NodeSeen,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
)
from joulie_projections.demand import GPU_RESOURCES, ask_of
from joulie_projections.pod import Pod
from joulie_projections.quantities import LARGEST, Quantity, parse

# Ours, and those by which clouds say what a node costs.
_OUR_LABELS = (
    "joulie.io/",
    "cloud.google.com/gke-spot",
    "eks.amazonaws.com/capacityType",
    "karpenter.sh/capacity-type",
    "kubernetes.azure.com/scalesetpriority",
    "node.kubernetes.io/lifecycle",
)


class NodeMetadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None


class NodeSpec(msgspec.Struct):
    unschedulable: bool | None = None


class Condition(msgspec.Struct):
    type: str
    status: str


class NodeStatus(msgspec.Struct):
    allocatable: dict[str, Quantity] | None = None
    conditions: list[Condition] | None = None


class Node(msgspec.Struct):
    """The part of a Kubernetes Node that Joulie reads."""

    metadata: NodeMetadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


O = TypeVar("O", contravariant=True)  # noqa: E741
K = TypeVar("K")


class Kind(Protocol[O]):
    """How one kind of object turns into facts."""

    def key(self, seen: O, /) -> str: ...

    def fact(self, seen: O, /) -> Fact: ...

    def gone(self, key: str, /) -> Fact: ...


class NodeKind:
    def key(self, seen: Node, /) -> str:
        return seen.metadata.name

    def fact(self, seen: Node, /) -> NodeSeen:
        allocatable = seen.status.allocatable or {}
        where = f"node {seen.metadata.name}"
        cpu = parse(allocatable.get("cpu", "0"), f"{where}, cpu")
        gpus = sum(int(parse(allocatable.get(name, 0), where)) for name in GPU_RESOURCES)
        labels = seen.metadata.labels or {}
        return NodeSeen(
            node=seen.metadata.name,
            uid=seen.metadata.uid,
            labels={k: v for k, v in sorted(labels.items()) if k.startswith(_OUR_LABELS)},
            ready=_is_ready(seen),
            schedulable=not seen.spec.unschedulable,
            cpu_milli=min(int(cpu * 1000), int(LARGEST)),
            memory_bytes=int(parse(allocatable.get("memory", "0"), f"{where}, memory")),
            gpus=gpus,
        )

    def gone(self, key: str, /) -> NodeGone:
        return NodeGone(node=key)


class PodKind:
    def key(self, seen: Pod, /) -> str:
        return seen.metadata.uid or ""

    def fact(self, seen: Pod, /) -> Fact:
        phase = seen.status.phase if seen.status else None
        if phase in ("Succeeded", "Failed"):
            return PodFinished(uid=seen.metadata.uid or "")
        if seen.spec.node_name:
            return PodBound(pod=ask_of(seen), node=seen.spec.node_name)
        return PodPending(pod=ask_of(seen))

    def gone(self, key: str, /) -> PodGone:
        return PodGone(uid=key)


def _is_ready(node: Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or [])


class Told(Generic[K]):
    """What has been said of each object of a kind, so that nothing is said twice."""

    def __init__(self, kind: Kind[K], known: Iterable[str]) -> None:
        """`known` are the keys that the log already believes in."""
        self._kind = kind
        self._last: dict[str, Fact | None] = dict.fromkeys(known)

    def seen(self, thing: K) -> Fact | None:
        """The fact to tell, if it is news; raises BadQuantity for an object that makes no sense."""
        key = self._kind.key(thing)
        fact = self._kind.fact(thing)
        if not key or self._last.get(key) == fact:
            return None
        self._last[key] = fact
        return fact

    def deleted(self, thing: K) -> Fact | None:
        key = self._kind.key(thing)
        if key not in self._last:
            return None
        del self._last[key]
        return self._kind.gone(key)

    def missing(self, listed: Iterable[K]) -> list[Fact]:
        """After a whole list: farewell to what is not in it any more."""
        gone = sorted(set(self._last) - {self._kind.key(thing) for thing in listed})
        for key in gone:
            del self._last[key]
        return [self._kind.gone(key) for key in gone]
