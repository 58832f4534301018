"""NodeName: a pod that names its node."""

import numpy as np

from joulie_projections.twin.arrays import Bools
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.terms import Asked


def passing(cluster: Cluster, pod: Asked) -> Bools | None:
    if not pod.node_name:
        return None
    row = cluster.nodes.rows.get(pod.node_name, -1)
    found: Bools = np.arange(cluster.nodes.size) == row
    return found
