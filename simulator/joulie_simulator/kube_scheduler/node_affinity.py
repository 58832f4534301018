"""NodeAffinity: the labels of nodes that a pod requires or prefers."""

import numpy as np

from joulie_projections.twin.arrays import Bools, Ints
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.normal import by_highest
from joulie_simulator.kube_scheduler.terms import Asked, NodeTerm


def passing(cluster: Cluster, pod: Asked) -> Bools | None:
    if pod.required is None and not pod.selector:
        return None
    return required_nodes(cluster, pod)


def required_nodes(cluster: Cluster, pod: Asked) -> Bools:
    found = _all_of(cluster, pod.selector)
    if pod.required is None:
        return found
    any_term = np.zeros(cluster.nodes.size, np.bool_)
    for term in pod.required:
        any_term |= _all_of(cluster, term)
    return found & any_term


def scored(cluster: Cluster, pod: Asked, rows: Ints) -> Ints | None:
    if pod.preferred is None:
        return None
    found = np.zeros(cluster.nodes.size, np.int64)
    for weight, term in pod.preferred:
        found += weight * _all_of(cluster, term)
    return by_highest(found[rows])


def _all_of(cluster: Cluster, term: NodeTerm) -> Bools:
    found = cluster.nodes.all
    for requires in term:
        found = found & cluster.nodes.admitted(requires)
    return found
