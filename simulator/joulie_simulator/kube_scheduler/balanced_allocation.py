"""NodeResourcesBalancedAllocation: how equally CPU and memory of a node would be used."""

import numpy as np

from joulie_projections.twin.arrays import Floats, Ints
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.normal import BEST
from joulie_simulator.kube_scheduler.requests import SCORED
from joulie_simulator.kube_scheduler.terms import Asked


def balance(cluster: Cluster, pod: Asked, rows: Ints) -> Ints | None:
    """Up to Kubernetes 1.35. Nothing for a pod that requests neither."""
    return None if pod.requests.is_best_effort else _balance(cluster, pod, rows)


def improvement(cluster: Cluster, pod: Asked, rows: Ints) -> Ints | None:
    """From 1.36 on: by how much the pod makes the use more equal."""
    if pod.requests.is_best_effort:
        return None
    gained = _balance(cluster, pod, rows) - _balance(cluster, None, rows)
    return BEST // 2 + (BEST // 2 + gained) // 2


def _balance(cluster: Cluster, pod: Asked | None, rows: Ints) -> Ints:
    parts = [_used(cluster, name, pod, rows) for name in SCORED]
    both = (parts[0][1] > 0) & (parts[1][1] > 0)
    apart = np.where(both, np.abs((parts[0][0] - parts[1][0]) / 2), 0.0)
    return ((1 - apart) * BEST).astype(np.int64)


def _used(cluster: Cluster, name: str, pod: Asked | None, rows: Ints) -> tuple[Floats, Ints]:
    """The share that would be used, at most 1, and what the node has."""
    has = cluster.allocatable(name)[rows]
    asked = pod.requests.amounts.get(name, 0) if pod else 0
    share = (cluster.requested(name)[rows] + asked) / np.maximum(has, 1)
    return np.minimum(share, 1.0), has
