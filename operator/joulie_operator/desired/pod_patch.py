"""The change of a pod in a namespace that Joulie schedules.

The chart contains the same rules as CEL, for API servers that evaluate them; a test compares both.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from joulie_bus.events import WorkloadClass
from joulie_projections.pods.classify import PROFILE_LABEL, classify, exemption
from joulie_projections.pods.kubernetes_pod import Pod

DEFAULT_SCHEDULER = "default-scheduler"
NOT_ECO = {"key": PROFILE_LABEL, "operator": "NotIn", "values": ["eco"]}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_CLASS_RULES = frozenset({"annotation", "namespace"})
Tree = Mapping[str, Any]
Patch = list[dict[str, Any]]


def pod_patch(tree: Tree, namespace_class: WorkloadClass | None, scheduler: str) -> Patch:
    """The JSON patch; empty for a pod that stays as it is. Raises msgspec.ValidationError."""
    pod, spec = msgspec.convert(tree, Pod), tree.get("spec") or {}
    if not _is_meant(spec, pod):
        return []
    patch = [_added("/spec/schedulerName", scheduler)]
    if _is_performance(pod, namespace_class) and not _constrains_the_profile(pod):
        patch.append(_away_from_eco(spec))
    return patch


def _is_meant(spec: Tree, pod: Pod) -> bool:
    """Pods that are exempt at the extender, and pods that name a scheduler or a node, stay as they
    are.
    """
    names_scheduler = spec.get("schedulerName") not in (None, "", DEFAULT_SCHEDULER)
    return not (names_scheduler or pod.spec.node_name or exemption(pod))


def _is_performance(pod: Pod, namespace_class: WorkloadClass | None) -> bool:
    found = classify(pod, namespace_class)
    return found.workload == "performance" and found.rule in _CLASS_RULES


def _constrains_the_profile(pod: Pod) -> bool:
    """Such a pod has chosen its nodes itself; another requirement may leave it none."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    terms = (required.node_selector_terms if required else None) or []
    keys = {each.key for term in terms for each in term.match_expressions or []}
    return PROFILE_LABEL in keys or PROFILE_LABEL in (pod.spec.node_selector or {})


def _away_from_eco(spec: Tree) -> dict[str, Any]:
    """Terms are alternatives, so each one gets the requirement. An empty term matches no node, and
    would match many with it.
    """
    path, below = "/spec", spec
    value: dict[str, Any] = {"nodeSelectorTerms": [{"matchExpressions": [NOT_ECO]}]}
    for name in ("affinity", "nodeAffinity", _REQUIRED):
        path = f"{path}/{name}"
        if not below.get(name):
            missing = ("affinity", "nodeAffinity", _REQUIRED)
            for inner in reversed(missing[missing.index(name) + 1 :]):
                value = {inner: value}
            return _added(path, value)
        below = below[name]
    terms = [_with_requirement(term) for term in below.get("nodeSelectorTerms") or []]
    return _added(f"{path}/nodeSelectorTerms", terms)


def _with_requirement(term: Tree) -> Tree:
    if not (term.get("matchExpressions") or term.get("matchFields")):
        return term
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or []), NOT_ECO]}


def _added(path: str, value: object) -> dict[str, Any]:
    """`add` also replaces a member of an object."""
    return {"op": "add", "path": path, "value": value}
