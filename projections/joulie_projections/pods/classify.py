"""Classifies a pod's workload; the extender, the operator and the guard share this function.

The result names the rule that matched, so that `joulie explain` can show why a pod is standard.
"""

import re
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.events import Placement, PodAsk, WorkloadClass
from joulie_projections.pods.kubernetes_pod import OwnerReference, Pod, Requirement, Term

CLASS_ANNOTATION = "joulie.io/workload-class"
PROFILE_LABEL = "joulie.io/power-profile"
UNKNOWN_ANNOTATION = "unknown-annotation"

CLASS_ANNOTATIONS = frozenset({CLASS_ANNOTATION})  # the annotations that the class depends on
_MIRROR = "kubernetes.io/config.mirror"
CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_CRITICAL_PRIORITY = 2_000_000_000  # Kubernetes reserves priorities above it for the system


class Classification(NamedTuple):
    workload: WorkloadClass
    placement: Placement
    rule: str


def classify(pod: Pod, namespace_class: str | None = None) -> Classification:
    """Classifies by annotation, then constraints, then namespace.

    `namespace_class` is the value of the namespace's annotation; None if it is not known.
    """
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
    """Applies the namespace's class to a pod that was classified without it.

    The result equals that of `classify` with the namespace's class.
    """
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
    """Which profiles the pod's own constraints on the profile label allow."""
    if not pod.spec.node_selector and pod.spec.affinity is None:
        return "general"  # the common case
    if not admits(pod, "eco"):
        return "performance-only"
    if not admits(pod, "performance") and not admits(pod, None):
        return "eco-only"
    return "general"


def exemption(pod: Pod) -> str:
    """The reason why a policy must not reject this pod; empty if it may.

    Tenants can write any label, annotation and owner reference. Each reason therefore depends on a
    field that the API server or a controller checks, or that removes the benefit of a forgery;
    docs/policies.md lists the remaining risk.
    """
    if _is_of_daemonset(pod):
        return "daemonset"
    if _is_mirror(pod):
        return "mirror"
    return "critical" if _is_critical(pod) else ""


def _is_of_daemonset(pod: Pod) -> bool:
    """The DaemonSet controller pins each pod to one node by required affinity, so a forged pod
    gains only the one node that it names.
    """
    owner = _controller(pod, "DaemonSet")
    return (
        owner is not None
        and (owner.api_version or "").startswith("apps/")
        and _node_by_affinity(pod) is not None
    )


def _is_mirror(pod: Pod) -> bool:
    """The API server requires a nodeName with this annotation, so the pod is never scheduled."""
    node, owner = pod.spec.node_name, _controller(pod, "Node")
    is_on_its_owner = bool(node) and owner is not None and owner.name == node
    return is_on_its_owner and _MIRROR in (pod.metadata.annotations or {})


def _is_critical(pod: Pod) -> bool:
    """Admission resolves the class to its priority, and user classes cannot reach system values."""
    spec = pod.spec
    is_named = spec.priority_class_name in CRITICAL_CLASSES
    return is_named and (spec.priority or 0) >= _CRITICAL_PRIORITY


def _controller(pod: Pod, kind: str) -> OwnerReference | None:
    owners = pod.metadata.owner_references or []
    return next((owner for owner in owners if owner.kind == kind and owner.controller), None)


def _node_by_affinity(pod: Pod) -> str | None:
    """The single node that the pod's required affinity names, in the form that the DaemonSet
    controller writes: one term with one requirement, because terms are alternatives.
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
    """Reports whether the pod can run on a node with this profile label (None: no label)."""
    required = (pod.spec.node_selector or {}).get(PROFILE_LABEL)
    if required is not None and required != profile:
        return False
    terms = _required_terms(pod)
    return terms is None or any(_term_admits(term, profile) for term in terms)


def _required_terms(pod: Pod) -> list[Term] | None:
    """The required terms of the pod's node affinity; None if it has none."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return None if required is None else required.node_selector_terms or []


def _term_admits(term: Term, profile: str | None) -> bool:
    """Matches as kube-scheduler does: empty and invalid terms match no node."""
    ours = (each for each in term.match_expressions or () if each.key == PROFILE_LABEL)
    return is_valid_term(term) and all(_requirement_admits(each, profile) for each in ours)


def is_valid_term(term: Term) -> bool:
    """Whether any node can match it."""
    expressions, fields = term.match_expressions or [], term.match_fields or []
    is_valid = all(map(_is_expression, expressions)) and all(map(_is_field, fields))
    return is_valid and bool(expressions or fields)


def _is_expression(requirement: Requirement) -> bool:
    values = requirement.values or []
    match requirement.operator:
        case "In" | "NotIn":
            has_values = bool(values)
        case "Exists" | "DoesNotExist":
            has_values = not values
        case "Gt" | "Lt":
            has_values = len(values) == 1 and _INTEGER.fullmatch(values[0]) is not None
        case _:
            has_values = False
    return has_values and all(map(_LABEL_VALUE.fullmatch, values))


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
            return False  # Gt and Lt compare numbers, and no profile is a number
