"""NodeUnschedulable: cordoned nodes, but for pods that tolerate the taint of that name."""

from joulie_projections.twin.arrays import Bools
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.objects import Taint
from joulie_simulator.kube_scheduler.taint_toleration import tolerates
from joulie_simulator.kube_scheduler.terms import Asked

TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def passing(cluster: Cluster, pod: Asked) -> Bools | None:
    cordoned = cluster.nodes.unschedulable
    if not cordoned.any() or tolerates(pod.tolerations, TAINT):
        return None
    return ~cordoned
