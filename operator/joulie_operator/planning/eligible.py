"""The nodes that plans cover, and the demand of pods."""

from collections.abc import Mapping
from zlib import crc32

from joulie_bus.events import PodAsk
from joulie_operator.planning.density import density, families
from joulie_operator.planning.policies import Candidate, Demand, by_density
from joulie_operator.planning.rules import Rules
from joulie_projections.state.state import ClusterState, NodeState, PodState

RESERVED_LABEL = "joulie.io/reserved"


def selector(text: str) -> dict[str, str]:
    """label=value pairs, separated by commas; empty selects every node"""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not key.strip() or not equals for key, equals, _ in pairs):
        raise ValueError("not a list of label=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


def candidates(nodes: Mapping[str, NodeState], rules: Rules) -> list[Candidate]:
    """The nodes that plans cover, the densest first; equal ones by a hash of their names."""
    labels = selector(rules.selector)
    ours = {name: node for name, node in nodes.items() if is_eligible(node, labels)}
    family, spread = families(ours), rules.equal_nodes == "spread"
    return by_density(
        Candidate(
            name,
            family[name],
            density(node),
            crc32(name.encode()) if spread else 0,
        )
        for name, node in ours.items()
    )


def is_eligible(node: NodeState, selector: Mapping[str, str]) -> bool:
    """Whether plans give the node a class. A node that sleeps keeps the class that it has."""
    is_usable = node.ready and node.schedulable and not node.power_state
    return is_usable and is_covered(node, selector)


def is_covered(node: NodeState, selector: Mapping[str, str]) -> bool:
    """Whether the node is the operator's, usable at the moment or not."""
    is_reserved = node.labels.get(RESERVED_LABEL) == "true"
    return node.present and not is_reserved and selector.items() <= node.labels.items()


def demand_of(cluster_state: ClusterState) -> Demand:
    """Bound pods come from the counters of their nodes; only pending ones are counted here."""
    waiting = [pod.pod for pod in cluster_state.pods.values() if _is_waiting(pod)]
    return Demand(
        performance_pending=sum(map(_needs_performance, waiting)),
        performance_bound=sum(node.performance_pods for node in cluster_state.nodes.values()),
        eco_only_pending=sum(pod.placement == "eco-only" for pod in waiting),
    )


def _needs_performance(pod: PodAsk) -> bool:
    """An exempt pod runs on any node, as in `NodeState.performance_pods`."""
    return pod.workload == "performance" and not pod.exempt


def _is_waiting(pod: PodState) -> bool:
    return not pod.node and not pod.finished
