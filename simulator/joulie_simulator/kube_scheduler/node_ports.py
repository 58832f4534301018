"""NodePorts: ports of the node that a pod takes."""

from joulie_projections.twin.arrays import Bools
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.terms import Asked


def passing(cluster: Cluster, pod: Asked) -> Bools | None:
    found = None
    for port in pod.ports:
        free = ~cluster.with_port(*port)
        found = free if found is None else found & free
    return found
