"""How many nodes the waiting pods need, by pool and class, and nodes that serve them at once."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from joulie_bus.events import PodAsk, Profile
from joulie_operator.planning.policies import Candidate, Share, one_per_family
from joulie_operator.planning.refused_on_sample import FreeNodes
from joulie_operator.planning.rules import Rules
from joulie_projections.pods.load import load_of
from joulie_projections.state.state import ClusterState, NodeState

MOST_WAITING = 2000  # pods that one plan looks for a place for
PERFORMANCE: Profile = "performance"


class Capacity(NamedTuple):
    cpu_milli: int = 0
    gpu_milli: int = 0

    def has_room_for(self, asked: "Capacity") -> bool:
        return self.cpu_milli >= asked.cpu_milli and self.gpu_milli >= asked.gpu_milli


class Need(NamedTuple):
    """The nodes that the waiting pods of a pool would fill; eco nodes refuse class performance."""

    performance: int = 0
    standard: int = 0
    largest: Capacity = Capacity()  # that the performance pods ask for

    @property
    def nodes(self) -> int:
        return self.performance + self.standard


class Needs(NamedTuple):
    """What the waiting pods need."""

    pools: Mapping[bool, Need]  # of the pool without cards, and of the one with cards
    taken: frozenset[str]  # nodes on which performance pods fit


def is_empty(node: NodeState) -> bool:
    """Whether no pod would have to move if the node slept."""
    return node.pods == node.daemon_pods and not node.draining


def needed_nodes(cluster_state: ClusterState) -> Needs:
    """Whole nodes for the pods that fit on no node, without and with cards; the largest node of
    each pool is the measure.

    The largest pods come first, so that small ones do not take the only nodes that fit them.
    """
    nodes, pods = cluster_state.nodes, cluster_state.pods
    free = FreeNodes(nodes, closed_too=True)
    waiting = (each.pod for each in pods.values() if not each.node and not each.finished)
    ordered = sorted(waiting, key=lambda pod: (-pod.gpu_milli, -load_of(pod).cpu_milli, pod.uid))
    places = [(pod, free.take(pod)) for pod in ordered[:MOST_WAITING]]
    left = [pod for pod, place in places if place is None]
    taken = {place for pod, place in places if place and pod.workload == PERFORMANCE}
    found: dict[bool, Need] = {}
    for has_cards in (False, True):
        largest = _largest(nodes, has_cards=has_cards)
        ours = [pod for pod in left if bool(pod.gpu_milli) == has_cards]
        performance = [pod for pod in ours if pod.workload == "performance"]
        standard = [pod for pod in ours if pod.workload != "performance"]
        found[has_cards] = Need(
            _filled(performance, largest),
            _filled(standard, largest),
            _most_asked(performance, largest),
        )
    return Needs(found, frozenset(taken))


def serving_pods(
    share: Share,
    nodes: Mapping[str, NodeState],
    candidates: Sequence[Candidate],
    rules: Rules,
    needs: Needs,
) -> Share:
    """More performance nodes, where class performance needs them: those that run such pods or
    will soon, and empty eco nodes for the pods that fit on no node. A node that changes its class
    is ready at once, and one that wakes up is not."""
    busy = [
        each.name
        for each in candidates
        if nodes[each.name].performance_pods or each.name in needs.taken
    ]
    freed = [
        name
        for has_cards, need in needs.pools.items()
        for name in freed_by(need, nodes, [each.name for each in candidates], has_cards)
    ]
    pinned = dict.fromkeys([*busy, *freed], PERFORMANCE)
    least = set(pinned)
    if rules.family_floor == "always":
        least |= {each.name for each in one_per_family(candidates)}
    return share._replace(
        performance=max(share.performance, len(least)),
        inputs={**share.inputs, "nodes_for_performance_pods": len(freed)},
        pinned={**pinned, **share.pinned},
    )


def freed_by(
    need: Need, nodes: Mapping[str, NodeState], names: Iterable[str], has_cards: bool
) -> list[str]:
    """The empty eco nodes that the performance pods get. Each of them has room for the largest."""
    usable = (
        name
        for name in names
        if (nodes[name].gpus > 0) == has_cards
        and nodes[name].profile == "eco"
        and is_empty(nodes[name])
        and _capacity(nodes[name]).has_room_for(need.largest)
    )
    return list(islice(usable, need.performance))


def _capacity(node: NodeState) -> Capacity:
    return Capacity(node.cpu_milli, node.gpu_milli)


def _most_asked(pods: Iterable[PodAsk], node: Capacity) -> Capacity:
    """Of the pods that a node can run at all."""
    asked = (Capacity(load_of(pod).cpu_milli, pod.gpu_milli) for pod in pods)
    possible = [each for each in asked if node.has_room_for(each)]
    return Capacity(*map(max, zip(*possible, strict=True)))


def _largest(nodes: Mapping[str, NodeState], *, has_cards: bool) -> Capacity:
    of_pool = [node for node in nodes.values() if (node.gpus > 0) == has_cards]
    return Capacity(
        max((node.cpu_milli for node in of_pool), default=0),
        max((node.gpu_milli for node in of_pool), default=0),
    )


def _filled(pods: Iterable[PodAsk], node: Capacity) -> int:
    """A pod that asks for more than the largest node wakes none: no node can run it."""
    share = 0.0
    for pod in pods:
        cpu = load_of(pod).cpu_milli / node.cpu_milli if node.cpu_milli else math.inf
        gpu = pod.gpu_milli / node.gpu_milli if node.gpu_milli else math.inf * bool(pod.gpu_milli)
        part = max(cpu, gpu) if pod.gpu_milli else cpu
        share += part if part <= 1 else 0.0
    return math.ceil(share)
