"""InterPodAffinity: pods near others, or apart from them."""

import numpy as np

from joulie_projections.twin.arrays import Bools, Ints
from joulie_simulator.kube_scheduler.cluster import Cluster
from joulie_simulator.kube_scheduler.normal import BEST
from joulie_simulator.kube_scheduler.pod_counts import Counted
from joulie_simulator.kube_scheduler.terms import Asked, Near

HARD_WEIGHT = 1  # of a required term of a bound pod that a new pod meets

# --- required ---------------------------------------------------------------------------------


def passing(cluster: Cluster, pod: Asked) -> Bools | None:
    found = None
    for term, holders in cluster.apart.met_by(pod):
        free = _pods_near(cluster, term, holders) == 0
        found = free if found is None else found & free
    for term in pod.apart:
        others = cluster.counts.of(Counted((term.among,)))
        free = _pods_near(cluster, term, others) == 0
        found = free if found is None else found & free
    if pod.near:
        beside = _beside(cluster, pod)
        found = beside if found is None else found & beside
    return found


def _beside(cluster: Cluster, pod: Asked) -> Bools:
    """Pods that meet all terms count. The first of pods that are near each other goes anywhere."""
    others = cluster.counts.of(Counted(tuple(term.among for term in pod.near)))
    has_keys, has_pods = cluster.nodes.all, cluster.nodes.all
    are_any = False
    for term in pod.near:
        is_set = cluster.nodes.codes(term.key).is_set
        has_keys = has_keys & is_set
        has_pods = has_pods & (_pods_near(cluster, term, others) > 0)
        are_any = are_any or bool(others[is_set].any())
    meets_itself = all(term.among.has(pod.namespace, pod.labels) for term in pod.near)
    return has_keys if not are_any and meets_itself else has_keys & has_pods


# --- preferred --------------------------------------------------------------------------------


def scored(cluster: Cluster, pod: Asked, rows: Ints) -> Ints | None:
    found, are_any = np.zeros(cluster.nodes.size, np.int64), False
    own = ((term, cluster.counts.of(Counted((term.among,)))) for term in pod.prefers)
    hard = ((term._replace(weight=HARD_WEIGHT), n) for term, n in cluster.near.met_by(pod))
    for term, holders in (*own, *hard, *cluster.prefers.met_by(pod)):
        are_any = are_any or bool(holders[cluster.nodes.codes(term.key).is_set].any())
        found += term.weight * _pods_near(cluster, term, holders)
    return _normal(found[rows]) if are_any else None


def _normal(scores: Ints) -> Ints:
    lowest, highest = int(scores.min()), int(scores.max())
    if lowest == highest:
        return np.zeros(len(scores), np.int64)
    return (BEST * ((scores - lowest) / (highest - lowest))).astype(np.int64)


def _pods_near(cluster: Cluster, term: Near, holders: Ints) -> Ints:
    """Their number in the domain of each node; 0 for nodes without the label."""
    codes = cluster.nodes.codes(term.key)
    return codes.of_node(codes.sums(holders, cluster.nodes.all))
