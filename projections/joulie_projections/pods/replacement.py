"""Which controllers replace a pod by an equal one that continues elsewhere."""

from typing import NamedTuple

from joulie_projections.pods.kubernetes_pod import Pod

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"


class Controller(NamedTuple):
    kind: str
    group: str


# A Job counts an eviction as a failure, and begins its work again.
REPLACING = {
    Controller("ReplicaSet", "apps"),
    Controller("StatefulSet", "apps"),
    Controller("ReplicationController", ""),
}


def controller_of(pod: Pod) -> Controller | None:
    for owner in pod.metadata.owner_references or ():
        if owner.controller:
            return Controller(owner.kind or "", (owner.api_version or "").rpartition("/")[0])
    return None


def replaced_by(pod: Pod) -> str:
    """The kind of the controller; empty if none replaces the pod, or an annotation forbids it."""
    controller = controller_of(pod)
    if controller is None or controller not in REPLACING:
        return ""
    annotations = pod.metadata.annotations or {}
    if annotations.get(SAFE) == "false" or annotations.get(DO_NOT_DISRUPT) == "true":
        return ""
    return controller.kind
