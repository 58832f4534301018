"""The fields of a Kubernetes Pod that Joulie reads; the decoder skips all others.

Any field may be absent or null, because Go's encoder writes both.
"""

import msgspec

from joulie_projections.quantities import Quantity


class Resources(msgspec.Struct):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None

    def requested(self, name: str) -> Quantity | None:
        """The request, else the limit."""
        for amounts in (self.requests, self.limits):
            if amounts is not None and name in amounts:
                return amounts[name]
        return None


class Container(msgspec.Struct, rename="camel"):
    name: str | None = None
    resources: Resources | None = None
    restart_policy: str | None = None

    @property
    def is_sidecar(self) -> bool:
        """Of an init container: it runs beside the others."""
        return self.restart_policy == "Always"


class Requirement(msgspec.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class Term(msgspec.Struct, rename="camel"):
    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(msgspec.Struct, rename="camel"):
    node_selector_terms: list[Term] | None = None


class NodeAffinity(msgspec.Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(msgspec.Struct, rename="camel"):
    node_affinity: NodeAffinity | None = None


class OwnerReference(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class Metadata(msgspec.Struct, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    resource_version: str | None = None


class PodResourceClaim(msgspec.Struct, rename="camel"):
    name: str | None = None
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGroup(msgspec.Struct, rename="camel"):
    pod_group_name: str | None = None


class Spec(msgspec.Struct, rename="camel"):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: Resources | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    node_name: str | None = None
    resource_claims: list[PodResourceClaim] | None = None
    scheduling_group: SchedulingGroup | None = None


class ClaimStatus(msgspec.Struct, rename="camel"):
    """The claim that was made of a template for this pod."""

    name: str | None = None
    resource_claim_name: str | None = None


class Amounts(msgspec.Struct, gc=False):
    """Of the resources that a resize in place can change; the API server refuses all others."""

    cpu: Quantity | None = None
    memory: Quantity | None = None


class ActualResources(msgspec.Struct):
    requests: Amounts | None = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    """What the kubelet has set aside for a container, and what is in force."""

    name: str | None = None
    allocated_resources: Amounts | None = None
    resources: ActualResources | None = None


class PodCondition(msgspec.Struct, gc=False):
    type: str | None = None
    reason: str | None = None


class Status(msgspec.Struct, rename="camel"):
    phase: str | None = None
    resource_claim_statuses: list[ClaimStatus] | None = None
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    # Of the pod as a whole, from Kubernetes 1.35 on.
    allocated_resources: Amounts | None = None
    resources: ActualResources | None = None


class Pod(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status | None = None
