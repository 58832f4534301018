import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_operator.planning.policies import (
    BUILT_IN,
    BY_DENSITY,
    BY_FAMILY,
    BY_NAME,
    NO_SLOT,
    Assignment,
    Candidate,
    Demand,
    DesiredProfiles,
    Share,
    Situation,
    assign,
    by_density,
    clamp,
    desired_profiles,
    queue_aware_v1,
    rule_swap_v1,
    share_of,
    static_partition,
)
from joulie_operator.planning.rules import Rules

CALM = Demand()


def node(name: str, family: str = "cpu", density: float = 0.5) -> Candidate:
    return Candidate(name, family, density)


def situation(
    nodes: int | list[Candidate] = 10, demand: Demand = CALM, now_s: float = 0, **said: Any
) -> Situation:
    made = [node(f"n{at:03}") for at in range(nodes)] if isinstance(nodes, int) else nodes
    return Situation(by_density(made), demand, now_s, Rules()._replace(**said).numbers())


def asked_of(name: str, seen: Situation, *, always: bool = False) -> DesiredProfiles:
    return desired_profiles(name, BUILT_IN[name](seen), seen, floor_always=always)


def performing(found: DesiredProfiles) -> set[str]:
    return {
        name
        for name, assignment in found.assignments.items()
        if assignment.profile == "performance"
    }


@pytest.mark.parametrize(
    ("count", "share", "whole"),
    [
        (1, 0, 0),
        (1, 0.49, 0),
        (1, 0.5, 1),
        (3, 0.5, 2),
        (5, 0.5, 3),
        (50, 0.29, 15),
        (50, -0.29, -15),
        (150, 0.07, 11),
        (10**9, 1e-9, 1),
    ],
)
def test_a_half_is_rounded_away_from_zero(count: int, share: float, whole: int) -> None:
    assert share_of(count, share) == whole


def test_every_share_of_a_hundredth_is_rounded_as_on_paper() -> None:
    found = {(n, pct): share_of(n, pct / 100) for n in range(1001) for pct in range(101)}

    assert found == {(n, pct): (n * pct * 2 + 100) // 200 for n, pct in found}


@pytest.mark.parametrize(
    ("pods", "per_node", "nodes"), [(21, 0.7, 30), (22, 0.7, 32), (3, 0.1, 30)]
)
def test_the_need_is_rounded_up_from_the_exact_quotient(
    pods: int, per_node: float, nodes: int
) -> None:
    said = {"queue_perf_per_hp_node": per_node, "queue_hp_base_frac": 0.0}

    assert queue_aware_v1(situation(100, Demand(pods), **said)).performance == nodes


@pytest.mark.parametrize(
    ("value", "low", "high", "kept"),
    [(5, 0, 9, 5), (-1, 0, 9, 0), (12, 0, 9, 9), (5, 7, 3, 3)],
    ids=["between", "below", "above", "the upper bound wins"],
)
def test_a_number_stays_within_its_bounds(value: int, low: int, high: int, kept: int) -> None:
    assert clamp(value, low, high) == kept


# --- the number of performance nodes ----------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "share", "performance"),
    [(10, 0.5, 5), (5, 0.5, 3), (3, 0.1, 0), (1, 0.5, 1), (7, 0, 0), (7, 1, 7), (0, 0.5, 0)],
)
def test_static_partition_gives_a_fixed_share(count: int, share: float, performance: int) -> None:
    found = asked_of("static_partition", situation(count, static_hp_frac=share))

    assert len(performing(found)) == found.performance == performance


@pytest.mark.parametrize(
    ("nodes", "pods", "said", "performance"),
    [
        (10, 0, {}, 6),
        (10, 60, {}, 6),
        (10, 61, {}, 7),
        (10, 75, {}, 8),
        (10, 1000, {}, 10),
        (10, 1000, {"queue_hp_max": 7}, 7),
        (10, 0, {"queue_hp_base_frac": 0, "queue_hp_min": 2}, 2),
        (5, 0, {"queue_hp_base_frac": 0.5}, 3),
        (3, 0, {"queue_hp_base_frac": 0, "queue_hp_min": 5}, 3),
        (0, 50, {}, 0),
        (10, 3, {"queue_hp_base_frac": 0, "queue_perf_per_hp_node": 1}, 3),
    ],
    ids=[
        "at rest",
        "the base is enough",
        "one pod more",
        "a part of ten counts",
        "never more than there are",
        "never more than allowed",
        "never less than wanted",
        "a half is rounded up",
        "the least of few",
        "no nodes",
        "a node per pod",
    ],
)
def test_performance_follows_the_queue(
    nodes: int, pods: int, said: dict[str, float], performance: int
) -> None:
    seen = situation(nodes, Demand(performance_pending=pods), **said)

    assert asked_of("queue_aware_v1", seen).performance == performance


def test_the_queue_counts_pending_and_bound_pods() -> None:
    demand = Demand(performance_pending=40, performance_bound=35, eco_only_pending=9)

    assert queue_aware_v1(situation(10, demand)) == Share(8, {"base": 6, "need": 8})


@pytest.mark.parametrize(
    ("now_s", "saves"), [(0, "a"), (59.9, "a"), (60, "b"), (119, "b"), (120, "a"), (1.9e9, "a")]
)
def test_rule_swap_makes_the_first_two_nodes_eco_in_turn(now_s: float, saves: str) -> None:
    found = asked_of("rule_swap_v1", situation([node(name) for name in "abcd"], now_s=now_s))

    assert performing(found) == set("abcd") - {saves}
    assert found.assignments[saves] == Assignment("eco", BY_NAME)


def test_rule_swap_makes_a_single_node_eco_every_other_interval() -> None:
    phases = [rule_swap_v1(situation([node("a")], now_s=at)).pinned for at in (0, 60)]

    assert phases == [{"a": "eco"}, {"a": "performance"}]


@pytest.mark.parametrize(("asked", "performance"), [(9, 4), (-1, 0), (2, 2)])
def test_the_number_of_a_policy_is_bounded_by_the_nodes(asked: int, performance: int) -> None:
    assert (
        desired_profiles("p", Share(asked), situation(4), floor_always=False).performance
        == performance
    )


# --- the choice of performance nodes ----------------------------------------------------------


def test_the_densest_nodes_are_chosen_and_ties_go_by_name() -> None:
    nodes = [node("d", density=0.9), node("c"), node("a"), node("b"), node("e", density=0.1)]

    assert assign(nodes, 2) == {
        "d": Assignment("performance", BY_FAMILY),
        "a": Assignment("performance", BY_DENSITY),
        "b": Assignment("eco", NO_SLOT),
        "c": Assignment("eco", NO_SLOT),
        "e": Assignment("eco", NO_SLOT),
    }


FAMILIES = [
    node("h1", "h100", 0.9),
    node("h2", "h100", 0.9),
    node("a1", "a100", 0.5),
    node("c1", "cpu", 0.1),
    node("c2", "cpu", 0.2),
]


@pytest.mark.parametrize(
    ("share", "always", "performance"),
    [
        (0.6, False, {"h1", "a1", "c2"}),
        (0.2, False, {"h1"}),
        (0.8, False, {"h1", "a1", "c2", "h2"}),
        (0.2, True, {"h1", "a1", "c2"}),
        (0.8, True, {"h1", "a1", "c2", "h2"}),
    ],
    ids=["one each", "too few slots", "and the densest", "beyond the slots", "slots enough"],
)
def test_each_family_gets_its_densest_node_first(
    share: float, always: bool, performance: set[str]
) -> None:
    seen = situation(FAMILIES, static_hp_frac=share)

    assert performing(asked_of("static_partition", seen, always=always)) == performance


def test_a_node_stays_eco_for_pending_eco_only_pods() -> None:
    seen = situation(FAMILIES, Demand(eco_only_pending=1), static_hp_frac=1)

    assert performing(asked_of("static_partition", seen)) == {"h1", "h2", "a1", "c2"}


def test_pins_of_a_policy_do_not_take_the_last_node_from_eco_only_pods() -> None:
    named = Share(2, pinned={"n000": "performance", "n001": "performance"})
    found = desired_profiles(
        "p", named, situation(2, Demand(eco_only_pending=1)), floor_always=False
    )

    assert found.assignments == {
        "n000": Assignment("performance", BY_NAME),
        "n001": Assignment("eco", NO_SLOT),
    }


def test_desired_profiles_include_their_inputs() -> None:
    demand = Demand(performance_pending=1, performance_bound=2, eco_only_pending=3)
    found = asked_of("static_partition", situation(FAMILIES, demand, static_hp_frac=0.4))

    assert found.because == "static_partition: 2 of 5 nodes supply performance"
    assert found.inputs == {
        "STATIC_HP_FRAC": 0.4,
        "nodes": 5,
        "families": 3,
        "asked_for": 2,
        "performance_pods_pending": 1,
        "performance_pods_bound": 2,
        "eco_only_pods_pending": 3,
    }


# --- laws -------------------------------------------------------------------------------------

clusters = st.lists(
    st.builds(
        Candidate,
        st.text("abcdef", min_size=1, max_size=3),
        st.sampled_from(["h100", "a100", "cpu"]),
        st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    ),
    max_size=12,
    unique_by=lambda candidate: candidate.name,
)
pods = st.integers(0, 200)
demands = st.builds(Demand, pods, pods, st.integers(0, 2))
policies = st.sampled_from(sorted(BUILT_IN))
fractions = st.floats(0, 1)
quick = settings(deadline=None, max_examples=100)


@quick
@given(policies, clusters, demands, st.floats(0, 1e10), st.booleans())
def test_every_node_gets_exactly_one_profile(
    policy: str, nodes: list[Candidate], demand: Demand, now_s: float, always: bool
) -> None:
    found = asked_of(policy, situation(nodes, demand, now_s), always=always)

    assert found.assignments.keys() == {each.name for each in nodes}
    assert len(performing(found)) == found.performance


@quick
@given(policies, clusters, demands, st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_changes_nothing(
    policy: str, nodes: list[Candidate], demand: Demand, draw: random.Random
) -> None:
    shuffled = draw.sample(nodes, len(nodes))

    found = asked_of(policy, situation(shuffled, demand))
    assert found == asked_of(policy, situation(nodes, demand))


@quick
@given(clusters, pods, pods, fractions)
def test_more_demand_never_removes_a_performance_node(
    nodes: list[Candidate], one: int, other: int, base: float
) -> None:
    calm, busy = (
        asked_of("queue_aware_v1", situation(nodes, Demand(count), queue_hp_base_frac=base))
        for count in (min(one, other), max(one, other))
    )

    assert performing(calm) <= performing(busy)


@quick
@given(clusters, fractions, fractions)
def test_performance_nodes_stay_when_the_number_grows(
    nodes: list[Candidate], one: float, other: float
) -> None:
    few, many = (
        asked_of("static_partition", situation(nodes, static_hp_frac=share))
        for share in (min(one, other), max(one, other))
    )

    assert performing(few) <= performing(many)


@quick
@given(clusters, demands, st.integers(0, 15), st.integers(0, 15))
def test_the_queue_aware_number_stays_within_its_bounds(
    nodes: list[Candidate], demand: Demand, one: int, other: int
) -> None:
    least, most = min(one, other), max(one, other)
    count = queue_aware_v1(situation(nodes, demand, queue_hp_min=least, queue_hp_max=most))

    assert least <= count.performance <= most


@quick
@given(clusters, st.integers(0, 12))
def test_every_family_gets_a_node_while_there_are_slots(nodes: list[Candidate], count: int) -> None:
    assignments = assign(nodes, count)
    families = {each.family for each in nodes}
    served = {each.family for each in nodes if assignments[each.name].profile == "performance"}

    assert len(served) == min(count, len(families), len(nodes))


@quick
@given(clusters, fractions)
def test_a_static_share_does_not_depend_on_pods(nodes: list[Candidate], share: float) -> None:
    calm, busy = (
        static_partition(situation(nodes, Demand(count), static_hp_frac=share)) for count in (0, 99)
    )

    assert calm == busy
