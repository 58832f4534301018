"""TaintToleration: taints that forbid a node, and those that make it worse."""

from collections.abc import Iterable

from joulie_projections.twin.arrays import Bools, Ints
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.normal import by_highest
from joulie_simulator.kube_scheduler.objects import Taint, Toleration
from joulie_simulator.kube_scheduler.terms import Asked

FORBIDDING = ("NoSchedule", "NoExecute")
PREFER_NOT = "PreferNoSchedule"


def passing(cluster: Cluster, pod: Asked) -> Bools | None:
    return untainted(cluster, pod)


def untainted(cluster: Cluster, pod: Asked) -> Bools:
    """Nodes without a taint that forbids this pod."""
    are_free = [
        all(each.effect not in FORBIDDING or tolerates(pod.tolerations, each) for each in taints)
        for taints in cluster.nodes.taint_sets
    ]
    found: Bools = cluster.nodes.by_taints(are_free) != 0
    return found


def scored(cluster: Cluster, pod: Asked, rows: Ints) -> Ints:
    counts = [
        sum(each.effect == PREFER_NOT and not tolerates(pod.tolerations, each) for each in taints)
        for taints in cluster.nodes.taint_sets
    ]
    return by_highest(cluster.nodes.by_taints(counts)[rows], fewer_is_better=True)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case _:
            return False  # Gt and Lt have a feature gate, which is off
