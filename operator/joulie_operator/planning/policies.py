"""How many nodes supply performance, and which. Pure functions of nodes, demand and settings.

A policy says how many; which ones is decided here, for all policies alike: one node per hardware
family first, then the densest. A policy of your own is a function from `Situation` to `Share`,
named by an entry point of the group `joulie.policies`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from joulie_bus.events import Profile

NO_NUMBERS: Mapping[str, float] = {}
NO_PINS: Mapping[str, Profile] = {}

# Why a node is what it shall be; said of every node that changes.
BY_NAME = "the policy names it"
BY_FAMILY = "it is the densest of its hardware family"
BY_DENSITY = "it is among the densest"
NO_SLOT = "denser nodes have all the slots"


class Candidate(NamedTuple):
    """An eligible node, as policies see it."""

    name: str
    family: str  # GPU model, or CPU model where there is no GPU
    density: float  # 0..1, against the densest hardware
    turn: int = 0  # among equally dense ones; where this is equal too, the name decides


class Demand(NamedTuple):
    """What waits and what runs, anywhere in the cluster."""

    performance_pending: int = 0  # performance pods that have no node yet
    performance_bound: int = 0  # and those that have one and are not finished
    eco_only_pending: int = 0

    @property
    def performance(self) -> int:
        return self.performance_pending + self.performance_bound


class Situation(NamedTuple):
    """All that a policy may look at."""

    nodes: Sequence[Candidate]  # the densest first
    demand: Demand
    now_s: float  # since 1970
    numbers: Mapping[str, float]  # of the settings, by their names


class Share(NamedTuple):
    """A policy's answer."""

    performance: int  # nodes that shall supply performance; as many as there are, at most
    inputs: Mapping[str, float] = NO_NUMBERS  # what it looked at, for the explanation
    pinned: Mapping[str, Profile] = NO_PINS  # nodes that it names itself


Policy = Callable[[Situation], Share]


class Seat(NamedTuple):
    profile: Profile
    why: str


class Wanted(NamedTuple):
    """Every node's profile, and the numbers that it rests on."""

    seats: dict[str, Seat]  # the densest first
    performance: int
    inputs: dict[str, float]
    because: str


def share_of(count: int, share: float) -> int:
    """Rounded, a half away from zero. Exact: 29 % of 50 are fourteen and a half, which floats miss
    by a little. Python's own round goes to the even number."""
    exact = exactly(share) * count
    whole = math.floor(abs(exact) + Fraction(1, 2))
    return whole if exact >= 0 else -whole


def exactly(setting: float) -> Fraction:
    """The number as it was written, not the nearest one that a float can be."""
    return Fraction(repr(setting))


def within(value: int, low: float, high: float) -> int:
    """Not below `low`, and never above `high`, even if that is below `low`."""
    return int(min(high, max(low, value)))


# --- the policies -----------------------------------------------------------------------------


def static_partition(situation: Situation) -> Share:
    """A fixed share of performance nodes, whatever happens."""
    share = situation.numbers["STATIC_HP_FRAC"]
    return Share(share_of(len(situation.nodes), share), {"STATIC_HP_FRAC": share})


def queue_aware_v1(situation: Situation) -> Share:
    """A base share, and more while performance pods need more."""
    numbers, pods = situation.numbers, situation.demand.performance
    base = share_of(len(situation.nodes), numbers["QUEUE_HP_BASE_FRAC"])
    need = math.ceil(pods / exactly(numbers["QUEUE_PERF_PER_HP_NODE"]))
    count = within(max(base, need), numbers["QUEUE_HP_MIN"], numbers["QUEUE_HP_MAX"])
    return Share(count, {"base": base, "need": need})


def rule_swap_v1(situation: Situation) -> Share:
    """One of the first two nodes saves, in turn. To see transitions, not to run anything."""
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
}


# --- from a number to nodes -------------------------------------------------------------------


def wanted(name: str, share: Share, situation: Situation, *, floor_always: bool) -> Wanted:
    """`floor_always` gives every hardware family a node even if that takes more of them."""
    nodes = situation.nodes
    families = len({node.family for node in nodes})
    asked = within(share.performance, 0, len(nodes))
    count = max(asked, families) if floor_always and not share.pinned else asked
    if situation.demand.eco_only_pending:
        count = min(count, max(0, len(nodes) - 1))  # pods wait that run nowhere else
    seats = seated(nodes, count, share.pinned)
    performance = sum(seat.profile == "performance" for seat in seats.values())
    return Wanted(
        seats=seats,
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


def seated(
    nodes: Sequence[Candidate], count: int, pinned: Mapping[str, Profile] = NO_PINS
) -> dict[str, Seat]:
    """Pinned nodes first, then one node per family, then the densest; as long as there are slots.

    `count` bounds the pinned ones too, so that no policy can take the last node from waiting pods.
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
    return {node.name: _seat(node.name, chosen, pinned) for node in ordered}


def _seat(name: str, chosen: Mapping[str, str], pinned: Mapping[str, Profile]) -> Seat:
    if name in chosen:
        return Seat("performance", chosen[name])
    return Seat("eco", BY_NAME if pinned.get(name) == "eco" else NO_SLOT)


def by_density(nodes: Sequence[Candidate]) -> list[Candidate]:
    return sorted(nodes, key=lambda node: (-node.density, node.turn, node.name))


def one_per_family(ordered: Sequence[Candidate]) -> list[Candidate]:
    first = {node.family: node for node in reversed(ordered)}
    return by_density(list(first.values()))
