"""Policies: how many nodes are performance nodes, and which.

A policy returns the number. The choice of nodes is the same for all policies: one node per hardware
family first, then the densest. A custom policy is a function from `Situation` to `Share`, declared
as an entry point of the group `joulie.policies`.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from joulie_bus.events import Profile

NO_NUMBERS: Mapping[str, float] = {}
NO_PINS: Mapping[str, Profile] = {}

# Why a node has its profile; part of the event of every node that changes.
BY_NAME = "the policy names it"
BY_FAMILY = "it is the densest of its hardware family"
BY_DENSITY = "it is among the densest"
NO_SLOT = "denser nodes have all the slots"
NO_CAPS = "no writer can set the caps of class eco on it"
FOR_ECO_ONLY = "pods wait that run on eco nodes only"


class Candidate(NamedTuple):
    """An eligible node, as policies see it."""

    name: str
    family: str  # GPU model, or CPU model where there is no GPU
    density: float  # 0..1, relative to the densest hardware
    turn: int = 0  # orders equally dense nodes; then the name does


class Demand(NamedTuple):
    """Pending and bound pods of the whole cluster."""

    performance_pending: int = 0  # performance pods without a node
    performance_bound: int = 0  # performance pods with a node, not finished
    eco_only_pending: int = 0

    @property
    def performance(self) -> int:
        return self.performance_pending + self.performance_bound


class Situation(NamedTuple):
    """The input of a policy."""

    nodes: Sequence[Candidate]  # the densest first
    demand: Demand
    now_s: float  # since 1970
    numbers: Mapping[str, float]  # numeric settings, by name


class Share(NamedTuple):
    """The result of a policy."""

    performance: int  # number of performance nodes; bounded by the number of nodes
    inputs: Mapping[str, float] = NO_NUMBERS  # what it used, for the explanation
    pinned: Mapping[str, Profile] = NO_PINS  # nodes whose profile the policy sets itself


Policy = Callable[[Situation], Share]


class Assignment(NamedTuple):
    """The profile of a node, with its reason."""

    profile: Profile
    why: str


class DesiredProfiles(NamedTuple):
    """The profile of every node, and the numbers behind it."""

    assignments: dict[str, Assignment]  # the densest first
    performance: int
    inputs: dict[str, float]
    because: str


def share_of(count: int, share: float) -> int:
    """Rounded, a half away from zero. Exact: 29 % of 50 is 14.5, which floats miss slightly, and
    `round` would round a half to the even number.
    """
    exact = exact_fraction(share) * count
    whole = math.floor(abs(exact) + Fraction(1, 2))
    return whole if exact >= 0 else -whole


def exact_fraction(setting: float) -> Fraction:
    """The decimal number as it was written, not the nearest float."""
    return Fraction(repr(setting))


def clamp(value: int, low: float, high: float) -> int:
    """Between `low` and `high`; `high` wins if it is below `low`."""
    return int(min(high, max(low, value)))


# --- the policies -----------------------------------------------------------------------------


def static_partition(situation: Situation) -> Share:
    """A fixed share of performance nodes, independent of demand."""
    share = situation.numbers["STATIC_HP_FRAC"]
    return Share(share_of(len(situation.nodes), share), {"STATIC_HP_FRAC": share})


def queue_aware_v1(situation: Situation) -> Share:
    """A base share of performance nodes, and more while performance pods need them."""
    numbers, pods = situation.numbers, situation.demand.performance
    base = share_of(len(situation.nodes), numbers["QUEUE_HP_BASE_FRAC"])
    need = math.ceil(pods / exact_fraction(numbers["QUEUE_PERF_PER_HP_NODE"]))
    count = clamp(max(base, need), numbers["QUEUE_HP_MIN"], numbers["QUEUE_HP_MAX"])
    return Share(count, {"base": base, "need": need})


def rule_swap_v1(situation: Situation) -> Share:
    """The first two nodes take turns as the eco node. For demonstrations of transitions only."""
    phase = math.floor(situation.now_s / situation.numbers["RECONCILE_INTERVAL"]) % 2
    named = [node.name for node in situation.nodes]
    pinned: dict[str, Profile] = dict.fromkeys(named, "performance")
    if phase < len(named):
        pinned[named[phase]] = "eco"
    return Share(len(named), {"phase": phase}, pinned)


BUILT_IN: Mapping[str, Policy] = {
    "static_partition": static_partition,
    "queue_aware_v1": queue_aware_v1,
    "rule_swap_v1": rule_swap_v1,
    "consolidate_and_sleep": queue_aware_v1,  # beside it, `sleep` puts empty nodes to sleep
}


def counted(share: Share, nodes: Sequence[Candidate], capped: Collection[str]) -> Share:
    """The share, with the number of nodes on which caps would be applied. Where there are none, no
    node is eco; pods that run on eco nodes only get one all the same."""
    inputs = {**share.inputs, "nodes_that_apply_caps": len(capped)}
    return share._replace(inputs=inputs) if capped else Share(len(nodes), inputs)


# --- from a number to nodes -------------------------------------------------------------------


def desired_profiles(
    name: str,
    share: Share,
    situation: Situation,
    *,
    floor_always: bool,
    capped: Collection[str] | None = None,
) -> DesiredProfiles:
    """`floor_always` gives every family a performance node, even beyond the policy's number. With
    `capped`, no other node is eco."""
    nodes = situation.nodes
    families = len({node.family for node in nodes})
    asked = clamp(share.performance, 0, len(nodes))
    count = max(asked, families) if floor_always and not share.pinned else asked
    if situation.demand.eco_only_pending:
        count = min(count, max(0, len(nodes) - 1))  # for pending pods that run on eco nodes only
    assignments = assign(nodes, count, share.pinned)
    if capped:
        eco_only = bool(situation.demand.eco_only_pending)
        assignments = _eco_where_capped(assignments, capped, eco_only=eco_only)
    performance = sum(assignment.profile == "performance" for assignment in assignments.values())
    return DesiredProfiles(
        assignments=assignments,
        performance=performance,
        inputs={
            **share.inputs,
            "nodes": len(nodes),
            "families": families,
            "asked_for": asked,
            "performance_pods_pending": situation.demand.performance_pending,
            "performance_pods_bound": situation.demand.performance_bound,
            "eco_only_pods_pending": situation.demand.eco_only_pending,
        },
        because=f"{name}: {performance} of {len(nodes)} nodes supply performance",
    )


def assign(
    nodes: Sequence[Candidate], count: int, pinned: Mapping[str, Profile] = NO_PINS
) -> dict[str, Assignment]:
    """Assigns `count` performance nodes: pinned nodes first, then one per family, then by density.

    `count` bounds pinned nodes, too, so that no policy can take the last eco node from pods that
    need it.
    """
    ordered = by_density(nodes)
    chosen: dict[str, str] = {}
    claims = (
        (BY_NAME, [node for node in ordered if pinned.get(node.name) == "performance"]),
        (BY_FAMILY, one_per_family(ordered)),
        (BY_DENSITY, ordered),
    )
    for why, claimants in claims:
        for node in claimants:
            if len(chosen) < count and pinned.get(node.name) != "eco":
                chosen.setdefault(node.name, why)
    return {node.name: _assignment(node.name, chosen, pinned) for node in ordered}


def _assignment(name: str, chosen: Mapping[str, str], pinned: Mapping[str, Profile]) -> Assignment:
    if name in chosen:
        return Assignment("performance", chosen[name])
    return Assignment("eco", BY_NAME if pinned.get(name) == "eco" else NO_SLOT)


def _eco_where_capped(
    assignments: Mapping[str, Assignment], capped: Collection[str], *, eco_only: bool
) -> dict[str, Assignment]:
    """Eco nodes without caps supply performance: they would save nothing, and refuse pods. For pods
    that run on eco nodes only, one node with caps is eco: the least dense."""
    found = {
        name: Assignment("performance", NO_CAPS)
        if each.profile == "eco" and name not in capped
        else each
        for name, each in assignments.items()
    }
    if eco_only and all(each.profile == "performance" for each in found.values()):
        *_, last = (name for name in found if name in capped)
        found[last] = Assignment("eco", FOR_ECO_ONLY)
    return found


def by_density(nodes: Iterable[Candidate]) -> list[Candidate]:
    return sorted(nodes, key=lambda node: (-node.density, node.turn, node.name))


def one_per_family(ordered: Sequence[Candidate]) -> list[Candidate]:
    first = {node.family: node for node in reversed(ordered)}
    return by_density(list(first.values()))
