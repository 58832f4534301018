"""Transitions of nodes as Kubernetes Events, for kubectl."""

from typing import Any

from joulie_operator.resources.custom_resources import NodeTwinSpec, ObjectMeta
from joulie_operator.resources.timestamps import rfc3339_micro

# Events about cluster-scoped objects are stored in this namespace.
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CONTROLLER = "joulie.io/operator"
PLANS = "joulie.io/plans"
LONGEST_NOTE = 1024  # the API server refuses more
REASONS = {
    "draining": "DrainingBegun",
    "eco": "EcoAssigned",
    "performance": "PerformanceAssigned",
    "unplanned": "PlanWithdrawn",
}


def event_of(
    twin: ObjectMeta, before: NodeTwinSpec | None, after: NodeTwinSpec, now_ns: int
) -> dict[str, Any] | None:
    """None if the profile does not change."""
    was, is_ = _state(before), _state(after)
    if was == is_:
        return None
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{twin.name}-", "namespace": "default"},
        "eventTime": rfc3339_micro(now_ns),
        "reportingController": CONTROLLER,
        "reportingInstance": CONTROLLER,
        "action": "Transition",
        "reason": REASONS[is_],
        "regarding": {
            "apiVersion": "joulie.io/v1alpha1",
            "kind": "NodeTwin",
            "name": twin.name,
            "uid": twin.uid,
        },
        "note": f"{was} to {is_}{_caps(after)}",
        "type": "Normal",
    }


def node_event(
    name: str, uid: str, reason: str, note: str, now_ns: int, action: str = "Wake"
) -> dict[str, Any]:
    """A warning about a node itself."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}-", "namespace": "default"},
        "eventTime": rfc3339_micro(now_ns),
        "reportingController": CONTROLLER,
        "reportingInstance": CONTROLLER,
        "action": action,
        "reason": reason,
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid},
        "note": note[:LONGEST_NOTE],
        "type": "Warning",
    }


def eviction_event(name: str, uid: str, note: str, now_ns: int) -> dict[str, Any]:
    """Why a pod of the node was evicted by `joulie plans`."""
    ours = {"type": "Normal", "reportingController": PLANS, "reportingInstance": PLANS}
    return node_event(name, uid, "PodEvicted", note, now_ns, "Evict") | ours


def _state(spec: NodeTwinSpec | None) -> str:
    if spec is None or spec.profile is None:
        return "unplanned"
    return "draining" if spec.scheduling and spec.scheduling.draining else spec.profile


def _caps(spec: NodeTwinSpec) -> str:
    cpu = spec.cpu.package_power_cap_pct_of_max if spec.cpu else None
    gpu = spec.gpu.power_cap.cap_pct_of_max if spec.gpu and spec.gpu.power_cap else None
    caps = [f"{what} {cap:g} %" for what, cap in (("CPU", cpu), ("GPU", gpu)) if cap is not None]
    return f"; caps: {', '.join(caps)}" if caps else ""
