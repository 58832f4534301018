"""What kind of workload a pod is: one function for extender, operator and guard.

It says which rule fired, so that "why is this pod standard?" has an answer.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.events import Placement, PodAsk, WorkloadClass
from joulie_projections.pod import Pod, Requirement, Term

CLASS_ANNOTATION = "joulie.io/workload-class"
PROFILE_LABEL = "joulie.io/power-profile"
UNKNOWN_ANNOTATION = "unknown-annotation"

_MIRROR = "kubernetes.io/config.mirror"
_SOURCE = "kubernetes.io/config.source"
TELLING = frozenset({CLASS_ANNOTATION, _MIRROR, _SOURCE})  # the annotations that are looked at
_CRITICAL_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
_CRITICAL_PRIORITY = 2_000_000_000  # Kubernetes' own line between users and the system


class Classified(NamedTuple):
    workload: WorkloadClass
    placement: Placement
    rule: str


def classify(pod: Pod, namespace_class: str | None = None) -> Classified:
    """`namespace_class` is the namespace's own annotation, if the namespace is known."""
    placement = placement_of(pod)
    annotation = (pod.metadata.annotations or {}).get(CLASS_ANNOTATION)
    if annotation is not None:
        return Classified(*_from_annotation(annotation, placement))
    if placement == "performance-only":
        return Classified("performance", placement, "constraint")
    if placement == "eco-only":
        return Classified("standard", placement, "constraint")
    match (namespace_class or "").strip():
        case "performance" | "standard" as workload:
            return Classified(workload, placement, "namespace")
        case _:
            return Classified("standard", placement, "default")


def in_namespace(pod: PodAsk, given: WorkloadClass | None) -> PodAsk:
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
    if not _admits(pod, "eco"):
        return "performance-only"
    if not _admits(pod, "performance") and not _admits(pod, None):
        return "eco-only"
    return "general"


def exemption(pod: Pod) -> str:
    """Why energy may never refuse this pod; empty if it may."""
    owners = pod.metadata.owner_references or []
    if any(owner.kind == "DaemonSet" and owner.controller for owner in owners):
        return "daemonset"
    annotations = pod.metadata.annotations or {}
    if _MIRROR in annotations or annotations.get(_SOURCE, "api") != "api":
        return "mirror"
    critical_class = pod.spec.priority_class_name in _CRITICAL_CLASSES
    if critical_class or (pod.spec.priority or 0) >= _CRITICAL_PRIORITY:
        return "critical"
    return ""


def _admits(pod: Pod, profile: str | None) -> bool:
    """Could the pod run on a node whose profile label has this value (None: no label)?"""
    wanted = (pod.spec.node_selector or {}).get(PROFILE_LABEL)
    if wanted is not None and wanted != profile:
        return False
    terms = _required_terms(pod)
    return not terms or any(_term_admits(term, profile) for term in terms)


def _required_terms(pod: Pod) -> list[Term]:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    terms = (required.node_selector_terms or []) if required else []
    return [term for term in terms if term.match_expressions or term.match_fields]


def _term_admits(term: Term, profile: str | None) -> bool:
    return all(_requirement_admits(r, profile) for r in _about_profile(term))


def _about_profile(term: Term) -> Iterable[Requirement]:
    return (r for r in term.match_expressions or [] if r.key == PROFILE_LABEL)


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
