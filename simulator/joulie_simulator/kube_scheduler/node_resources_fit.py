"""NodeResourcesFit: what is left of a node, and how full it would be."""

import numpy as np

from joulie_projections.twin.arrays import Bools, Ints
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.normal import BEST
from joulie_simulator.kube_scheduler.terms import Asked


def passing(cluster: Cluster, pod: Asked) -> Bools | None:
    fits = cluster.pods < cluster.most_pods
    for name, amount in pod.requests.amounts.items():
        if amount:
            fits = fits & (amount <= cluster.allocatable(name) - cluster.requested(name))
    return fits


def least_allocated(cluster: Cluster, pod: Asked, rows: Ints) -> Ints:
    """Higher the more stays free after the placement."""
    return _mean(cluster, pod, rows, fuller_is_better=False)


def most_allocated(cluster: Cluster, pod: Asked, rows: Ints) -> Ints:
    return _mean(cluster, pod, rows, fuller_is_better=True)


def _mean(cluster: Cluster, pod: Asked, rows: Ints, *, fuller_is_better: bool) -> Ints:
    """Of CPU and memory, those that the node has; with integer division."""
    total, parts = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    columns = zip(cluster.capacity, cluster.scored, pod.requests.asked, strict=True)
    for capacity, held, asked in columns:
        has, taken = capacity[rows], held[rows] + asked
        used = np.minimum(taken, has) if fuller_is_better else taken
        amount = used if fuller_is_better else np.maximum(has - used, 0)
        total += np.where(has > 0, amount * BEST // np.maximum(has, 1), 0)
        parts += has > 0
    return np.where(parts > 0, total // np.maximum(parts, 1), 0)
