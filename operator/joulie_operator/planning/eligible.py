"""Which nodes are planned for, and what waits for them. Pure."""

from collections.abc import Mapping
from functools import lru_cache
from zlib import crc32

from joulie_bus.events import PodAsk
from joulie_operator.planning.density import density, families
from joulie_operator.planning.policies import Candidate, Demand
from joulie_projections.state.state import ClusterState, NodeState, PodState

RESERVED_LABEL = "joulie.io/reserved"


@lru_cache(maxsize=8)
def selector(text: str) -> dict[str, str]:
    """label=value pairs, separated by commas; empty selects every node"""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not key.strip() or not equals for key, equals, _ in pairs):
        raise ValueError("not a list of label=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


def candidates(
    nodes: Mapping[str, NodeState], selector: Mapping[str, str], *, spread: bool = False
) -> list[Candidate]:
    """Nodes that the operator may plan for. `spread`: neighbours by name are none by their turn."""
    ours = {name: node for name, node in nodes.items() if is_eligible(node, selector)}
    family = families(ours)
    return [
        Candidate(name, family[name], density(node), crc32(name.encode()) if spread else 0)
        for name, node in ours.items()
    ]


def is_eligible(node: NodeState, selector: Mapping[str, str]) -> bool:
    usable = node.present and node.ready and node.schedulable
    reserved = node.labels.get(RESERVED_LABEL) == "true"
    return usable and not reserved and selector.items() <= node.labels.items()


def demand_of(cluster_state: ClusterState) -> Demand:
    """Bound pods are counted on their nodes already; only those that wait are looked for."""
    waiting = [pod.pod for pod in cluster_state.pods.values() if _waits(pod)]
    return Demand(
        performance_pending=sum(map(_wants_performance, waiting)),
        performance_bound=sum(node.performance_pods for node in cluster_state.nodes.values()),
        eco_only_pending=sum(pod.placement == "eco-only" for pod in waiting),
    )


def _wants_performance(pod: PodAsk) -> bool:
    """An exempt pod takes any node, as `NodeState.performance_pods` has it."""
    return pod.workload == "performance" and not pod.exempt


def _waits(pod: PodState) -> bool:
    return not pod.node and not pod.finished
