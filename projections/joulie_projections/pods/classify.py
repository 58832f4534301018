"""What kind of workload a pod is: one function for extender, operator and guard.

It says which rule fired, so that "why is this pod standard?" has an answer.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.events import Placement, PodAsk, WorkloadClass
from joulie_projections.pods.kubernetes_pod import OwnerReference, Pod, Requirement, Term

CLASS_ANNOTATION = "joulie.io/workload-class"
PROFILE_LABEL = "joulie.io/power-profile"
UNKNOWN_ANNOTATION = "unknown-annotation"

CLASS_ANNOTATIONS = frozenset({CLASS_ANNOTATION})  # the annotations that an ask depends on
_MIRROR = "kubernetes.io/config.mirror"
_CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_CRITICAL_PRIORITY = 2_000_000_000  # Kubernetes' own line between users and the system


class Classification(NamedTuple):
    workload: WorkloadClass
    placement: Placement
    rule: str


def classify(pod: Pod, namespace_class: str | None = None) -> Classification:
    """`namespace_class` is the namespace's own annotation, if the namespace is known."""
    placement = placement_of(pod)
    annotation = (pod.metadata.annotations or {}).get(CLASS_ANNOTATION)
    if annotation is not None:
        return Classification(*_from_annotation(annotation, placement))
    if placement == "performance-only":
        return Classification("performance", placement, "constraint")
    if placement == "eco-only":
        return Classification("standard", placement, "constraint")
    match (namespace_class or "").strip():
        case "performance" | "standard" as workload:
            return Classification(workload, placement, "namespace")
        case _:
            return Classification("standard", placement, "default")


def with_namespace_class(pod: PodAsk, given: WorkloadClass | None) -> PodAsk:
    """A pod that was understood without its namespace, once that is known: the same as with it."""
    if given is None or pod.rule != "default":
        return pod
    return replace(pod, workload=given, rule="namespace")


def _from_annotation(annotation: str, placement: Placement) -> tuple[WorkloadClass, Placement, str]:
    match annotation.strip():
        case "performance" | "standard" as workload:
            return workload, placement, "annotation"
        case _:
            return "standard", placement, UNKNOWN_ANNOTATION


def placement_of(pod: Pod) -> Placement:
    """What the pod's own constraints on the profile label leave open."""
    if not pod.spec.node_selector and pod.spec.affinity is None:
        return "general"  # most have none
    if not admits(pod, "eco"):
        return "performance-only"
    if not admits(pod, "performance") and not admits(pod, None):
        return "eco-only"
    return "general"


def exemption(pod: Pod) -> str:
    """Why energy may never refuse this pod; empty if it may.

    A tenant writes labels, annotations and owner references as it likes. Each reason therefore
    rests on a field that the API server or a controller checks, or that takes the gain away:
    docs/policies.md says what is left.
    """
    if _is_of_daemonset(pod):
        return "daemonset"
    if _is_mirror(pod):
        return "mirror"
    return "critical" if _is_critical(pod) else ""


def _is_of_daemonset(pod: Pod) -> bool:
    """The controller makes a pod per node and binds it to that node by required affinity, so a pod
    that claims the same gains one node that it names itself.
    """
    owner = _controller(pod, "DaemonSet")
    return (
        owner is not None
        and (owner.api_version or "").startswith("apps/")
        and _node_by_affinity(pod) is not None
    )


def _is_mirror(pod: Pod) -> bool:
    """The API server takes the annotation only beside a nodeName: such a pod is never scheduled."""
    node, owner = pod.spec.node_name, _controller(pod, "Node")
    is_on_its_owner = bool(node) and owner is not None and owner.name == node
    return is_on_its_owner and _MIRROR in (pod.metadata.annotations or {})


def _is_critical(pod: Pod) -> bool:
    """Admission resolves the class to its value, and no class of a user reaches the system's."""
    spec = pod.spec
    is_named = spec.priority_class_name in _CRITICAL_CLASSES
    return is_named and (spec.priority or 0) >= _CRITICAL_PRIORITY


def _controller(pod: Pod, kind: str) -> OwnerReference | None:
    owners = pod.metadata.owner_references or []
    return next((owner for owner in owners if owner.kind == kind and owner.controller), None)


def _node_by_affinity(pod: Pod) -> str | None:
    """The one node that the pod's required affinity names, as the DaemonSet controller writes it:
    one term with one requirement, because terms are alternatives.
    """
    terms = _required_terms(pod) or []
    if len(terms) != 1 or terms[0].match_expressions:
        return None
    match terms[0].match_fields:
        case [Requirement(key="metadata.name", operator="In", values=[node])]:
            return node
        case _:
            return None


def admits(pod: Pod, profile: str | None) -> bool:
    """Could the pod run on a node whose profile label has this value (None: no label)?"""
    wanted = (pod.spec.node_selector or {}).get(PROFILE_LABEL)
    if wanted is not None and wanted != profile:
        return False
    terms = _required_terms(pod)
    return terms is None or any(_term_admits(term, profile) for term in terms)


def _required_terms(pod: Pod) -> list[Term] | None:
    """Of the pod's node affinity; None where it requires nothing."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return None if required is None else required.node_selector_terms or []


def _term_admits(term: Term, profile: str | None) -> bool:
    """As kube-scheduler matches: an empty term and one that it cannot read match no node."""
    expressions, fields = term.match_expressions or [], term.match_fields or []
    if not (expressions or fields) or not _is_readable(expressions, fields):
        return False
    return all(_requirement_admits(r, profile) for r in expressions if r.key == PROFILE_LABEL)


def _is_readable(expressions: Iterable[Requirement], fields: Iterable[Requirement]) -> bool:
    return all(map(_is_expression, expressions)) and all(map(_is_field, fields))


def _is_expression(requirement: Requirement) -> bool:
    values = requirement.values or []
    match requirement.operator:
        case "In" | "NotIn":
            has_its_values = bool(values)
        case "Exists" | "DoesNotExist":
            has_its_values = not values
        case "Gt" | "Lt":
            has_its_values = len(values) == 1 and _INTEGER.fullmatch(values[0]) is not None
        case _:
            has_its_values = False
    return has_its_values and all(map(_LABEL_VALUE.fullmatch, values))


def _is_field(requirement: Requirement) -> bool:
    return requirement.operator in ("In", "NotIn") and len(requirement.values or []) == 1


def _requirement_admits(requirement: Requirement, profile: str | None) -> bool:
    values = requirement.values or []
    match requirement.operator:
        case "In":
            return profile in values
        case "NotIn":
            return profile not in values
        case "Exists":
            return profile is not None
        case "DoesNotExist":
            return profile is None
        case _:
            return False  # Gt and Lt compare numbers; no profile is one
