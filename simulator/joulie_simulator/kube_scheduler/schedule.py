"""One attempt of kube-scheduler: the nodes that pass, their scores, and the best."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from joulie_projections.twin.arrays import Bools, Ints
from joulie_simulator.kube_scheduler import (
    balanced_allocation,
    inter_pod_affinity,
    node_affinity,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    pod_topology_spread,
    taint_toleration,
)
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.terms import Asked

Filter = Callable[[Cluster, Asked], Bools | None]  # None: every node passes
Score = Callable[[Cluster, Asked, Ints], Ints | None]  # None: the plugin scores nothing

FIT, BALANCED = "NodeResourcesFit", "NodeResourcesBalancedAllocation"
# In the order of the default profile. The first one that rejects a node gives the reason.
FILTERS: Mapping[str, Filter] = {
    "NodeUnschedulable": node_unschedulable.passing,
    "NodeName": node_name.passing,
    "TaintToleration": taint_toleration.passing,
    "NodeAffinity": node_affinity.passing,
    "NodePorts": node_ports.passing,
    FIT: node_resources_fit.passing,
    "PodTopologySpread": pod_topology_spread.passing,
    "InterPodAffinity": inter_pod_affinity.passing,
}
# The score of images is not here: which image a node has is a list that kubelets cut off.
SCORES: Mapping[str, Score] = {
    "TaintToleration": taint_toleration.scored,
    "NodeAffinity": node_affinity.scored,
    FIT: node_resources_fit.least_allocated,
    "PodTopologySpread": pod_topology_spread.scored,
    "InterPodAffinity": inter_pod_affinity.scored,
    BALANCED: balanced_allocation.balance,
}
WEIGHTS = {"TaintToleration": 3, "NodeAffinity": 2, "PodTopologySpread": 2, "InterPodAffinity": 2}


class Profile(NamedTuple):
    """What a scheduler runs; the default is that of Kubernetes 1.34."""

    scores: Mapping[str, Score] = SCORES
    weights: Mapping[str, int] = WEIGHTS  # the others have 1


# What differs between versions, by the minor version that began it.
SINCE: Mapping[int, Mapping[str, Score]] = {36: {BALANCED: balanced_allocation.improvement}}


def profile_of(minor: int, *, most_allocated: bool = False) -> Profile:
    """The default profile of Kubernetes 1.MINOR, or the one that fills nodes."""
    scores = dict(SCORES)
    for since, changed in sorted(SINCE.items()):
        if since <= minor:
            scores.update(changed)
    if most_allocated:
        scores[FIT] = node_resources_fit.most_allocated
    return Profile(scores)


class Passed(NamedTuple):
    nodes: Bools
    rejected: Mapping[str, int]  # nodes by the plugin that rejected them first


def filtered(cluster: Cluster, pod: Asked) -> Passed:
    left, rejected = cluster.nodes.all, dict[str, int]()
    for name, passing in FILTERS.items():
        found = passing(cluster, pod)
        if found is None:
            continue
        lost = int((left & ~found).sum())
        if lost:
            rejected[name] = lost
        left = left & found
    return Passed(left, rejected)


def scores(cluster: Cluster, pod: Asked, rows: Ints, profile: Profile) -> dict[str, Ints]:
    """By plugin, with their weights; without plugins that score nothing."""
    found = ((name, score(cluster, pod, rows)) for name, score in profile.scores.items())
    return {
        name: profile.weights.get(name, 1) * points for name, points in found if points is not None
    }


def totals(cluster: Cluster, pod: Asked, rows: Ints, profile: Profile) -> Ints:
    found = np.zeros(len(rows), np.int64)
    for points in scores(cluster, pod, rows, profile).values():
        found += points
    return found
