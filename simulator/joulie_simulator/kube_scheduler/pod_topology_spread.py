"""PodTopologySpread: pods of a kind spread over zones, nodes or other values of a label."""

import math

import numpy as np

from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.node_affinity import required_nodes
from joulie_simulator.kube_scheduler.normal import BEST
from joulie_simulator.kube_scheduler.pod_counts import Counted
from joulie_simulator.kube_scheduler.taint_toleration import untainted
from joulie_simulator.kube_scheduler.terms import HOSTNAME, Among, Asked, Spread

# --- required ---------------------------------------------------------------------------------


def passing(cluster: Cluster, pod: Asked) -> Bools | None:
    if not pod.hard:
        return None
    with_keys = _with_keys(cluster, pod.hard)
    found = with_keys
    for spread in pod.hard:
        found = found & _within_skew(cluster, pod, spread, with_keys)
    return found


def _within_skew(cluster: Cluster, pod: Asked, spread: Spread, with_keys: Bools) -> Bools:
    codes = cluster.nodes.codes(spread.key)
    eligible = with_keys & _included(cluster, pod, spread)
    sums = codes.sums(_matching(cluster, pod, spread), eligible)
    present = codes.present(eligible)
    if not present.any():
        return cluster.nodes.all
    least = int(sums[present].min()) if present.sum() >= spread.min_domains else 0
    itself = spread.selector.matches(pod.labels)
    return codes.of_node(sums) + itself - least <= spread.max_skew


# --- preferred --------------------------------------------------------------------------------


def scored(cluster: Cluster, pod: Asked, rows: Ints) -> Ints | None:
    if not pod.soft:
        return None
    counted = _with_keys(cluster, pod.soft) if pod.has_own_spread else cluster.nodes.all
    chosen = np.zeros(cluster.nodes.size, np.bool_)
    chosen[rows] = True
    chosen &= counted
    total = np.zeros(cluster.nodes.size)
    for spread in pod.soft:
        total += _weighed(cluster, pod, spread, chosen, counted)
    found = np.where(chosen, np.floor(total + 0.5).astype(np.int64), 0)
    return _normal(found[rows], chosen[rows])


def _weighed(cluster: Cluster, pod: Asked, spread: Spread, chosen: Bools, counted: Bools) -> Floats:
    """The pods of the node's domain times the weight of a domain, the higher the more there are."""
    codes, pods = cluster.nodes.codes(spread.key), _matching(cluster, pod, spread)
    if spread.key == HOSTNAME:
        domains = int(chosen.sum())
    else:
        present = codes.present(chosen)
        without = bool((chosen & ~codes.is_set).any())  # is a domain of its own
        domains = int(present.sum()) + without
        pods = codes.of_node(codes.sums(pods, counted & _included(cluster, pod, spread)))
    weighed = pods * math.log(domains + 2) + float(spread.max_skew - 1)
    return np.where(codes.is_set, weighed, 0.0)


def _normal(scores: Ints, chosen: Bools) -> Ints:
    """Fewer pods are better; nodes that are not chosen get 0."""
    if not chosen.any():
        return np.zeros(len(scores), np.int64)
    highest, lowest = int(scores[chosen].max()), int(scores[chosen].min())
    if not highest:
        return np.where(chosen, BEST, 0)
    return np.where(chosen, BEST * (highest + lowest - scores) // highest, 0)


# --- both -------------------------------------------------------------------------------------


def _with_keys(cluster: Cluster, spreads: tuple[Spread, ...]) -> Bools:
    found = cluster.nodes.all
    for spread in spreads:
        found = found & cluster.nodes.codes(spread.key).is_set
    return found


def _included(cluster: Cluster, pod: Asked, spread: Spread) -> Bools:
    """Nodes whose pods count."""
    found = cluster.nodes.all
    if spread.honors_affinity:
        found = found & required_nodes(cluster, pod)
    if spread.honors_taints:
        found = found & untainted(cluster, pod)
    return found


def _matching(cluster: Cluster, pod: Asked, spread: Spread) -> Ints:
    """An empty selector counts no pods."""
    if spread.selector.is_everything:
        return np.zeros(cluster.nodes.size, np.int64)
    among = Among(frozenset((pod.namespace,)), spread.selector)
    return cluster.counts.of(Counted((among,), with_ending=False))
