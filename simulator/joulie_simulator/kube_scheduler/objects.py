"""The fields of nodes and pods that kube-scheduler reads; the decoder skips all others.

Any field may be absent or null, because Go's encoder writes both.
"""

from typing import Any

import msgspec

from joulie_projections.pods import kubernetes_pod
from joulie_projections.pods.kubernetes_pod import Requirement, Term
from joulie_projections.quantities import Quantity


class LabelSelector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


# --- nodes ------------------------------------------------------------------------------------


class Taint(msgspec.Struct, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeMetadata(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class NodeSpec(msgspec.Struct):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(msgspec.Struct):
    allocatable: dict[str, Quantity] | None = None


class Node(msgspec.Struct):
    metadata: NodeMetadata = msgspec.field(default_factory=NodeMetadata)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


# --- pods -------------------------------------------------------------------------------------


class Port(msgspec.Struct, rename="camel"):
    host_port: int | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class Container(kubernetes_pod.Container, rename="camel"):
    ports: list[Port] | None = None


class Toleration(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SpreadConstraint(msgspec.Struct, rename="camel"):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    match_label_keys: list[str] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class PreferredTerm(msgspec.Struct):
    weight: int = 0
    preference: Term = msgspec.field(default_factory=Term)


class PodTerm(msgspec.Struct, rename="camel"):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class WeightedPodTerm(msgspec.Struct, rename="camel"):
    weight: int = 0
    pod_affinity_term: PodTerm = msgspec.field(default_factory=PodTerm)


class PodTerms(msgspec.Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodTerm] | None = None


class NodeAffinity(kubernetes_pod.NodeAffinity, rename="camel"):
    preferred_during_scheduling_ignored_during_execution: list[PreferredTerm] | None = None


class Affinity(kubernetes_pod.Affinity, rename="camel"):
    node_affinity: NodeAffinity | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    pod_affinity: PodTerms | None = None
    pod_anti_affinity: PodTerms | None = None


class Metadata(kubernetes_pod.Metadata, rename="camel"):
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Spec(kubernetes_pod.Spec, rename="camel"):
    containers: list[Container] | None = None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    init_containers: list[Container] | None = None  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    affinity: Affinity | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    volumes: list[dict[str, Any]] | None = None
    scheduling_gates: list[Any] | None = None
    scheduler_name: str | None = None


class Pod(kubernetes_pod.Pod):
    metadata: Metadata = msgspec.field(  # pyright: ignore[reportIncompatibleVariableOverride]
        default_factory=Metadata
    )
    spec: Spec = msgspec.field(  # pyright: ignore[reportIncompatibleVariableOverride]
        default_factory=Spec
    )
