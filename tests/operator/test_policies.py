import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_operator.policies import Candidate, assigned, rounded, static_partition


def node(name: str, family: str = "cpu", density: float = 0.5) -> Candidate:
    return Candidate(name, family, density)


def performing(nodes: list[Candidate], hp_frac: float) -> set[str]:
    profiles = static_partition(nodes, hp_frac).profiles
    return {name for name, profile in profiles.items() if profile == "performance"}


@pytest.mark.parametrize(
    ("value", "whole"),
    [(0, 0), (0.49, 0), (0.5, 1), (1.49, 1), (1.5, 2), (2.5, 3), (3.5, 4), (4.0, 4)],
)
def test_a_half_is_rounded_away_from_zero(value: float, whole: int) -> None:
    assert rounded(value) == whole


@pytest.mark.parametrize(
    ("count", "hp_frac", "performance"),
    [(10, 0.5, 5), (5, 0.5, 3), (3, 0.1, 0), (1, 0.5, 1), (7, 0, 0), (7, 1, 7), (0, 0.5, 0)],
)
def test_a_fixed_share_of_the_nodes_performs(count: int, hp_frac: float, performance: int) -> None:
    nodes = [node(f"n{at}") for at in range(count)]

    assert len(performing(nodes, hp_frac)) == performance


@pytest.mark.parametrize(("hp_frac", "performance"), [(2.0, 4), (-1.0, 0)])
def test_a_share_beyond_all_nodes_is_all_nodes(hp_frac: float, performance: int) -> None:
    assert len(performing([node(name) for name in "abcd"], hp_frac)) == performance


def test_the_densest_nodes_perform_and_ties_go_by_name() -> None:
    nodes = [node("d", density=0.9), node("c"), node("a"), node("b"), node("e", density=0.1)]

    assert performing(nodes, 0.4) == {"d", "a"}


def test_each_family_gets_its_densest_node_first() -> None:
    nodes = [
        node("h1", "h100", 0.9),
        node("h2", "h100", 0.9),
        node("a1", "a100", 0.5),
        node("c1", "cpu", 0.1),
        node("c2", "cpu", 0.2),
    ]

    assert performing(nodes, 0.6) == {"h1", "a1", "c2"}


def test_families_take_only_slots_that_exist() -> None:
    nodes = [node("a", "h100", 0.9), node("b", "a100", 0.5), node("c", "cpu", 0.1)]

    assert performing(nodes, 0.34) == {"a"}


def test_a_policy_says_what_its_answer_rests_on() -> None:
    wanted = static_partition([node("a"), node("b")], 0.5)

    assert wanted.inputs == {"nodes": 2, "static_hp_frac": 0.5, "performance": 1}
    assert wanted.because == "static_partition: 1 of 2 nodes supply performance"


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
fractions = st.floats(0, 1)
quick = settings(deadline=None, max_examples=100)


@quick
@given(clusters, fractions)
def test_every_node_gets_exactly_one_profile(nodes: list[Candidate], hp_frac: float) -> None:
    profiles = static_partition(nodes, hp_frac).profiles

    assert profiles.keys() == {each.name for each in nodes}
    assert len(performing(nodes, hp_frac)) == min(len(nodes), rounded(len(nodes) * hp_frac))


@quick
@given(clusters, fractions, st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_changes_nothing(
    nodes: list[Candidate], hp_frac: float, draw: random.Random
) -> None:
    shuffled = draw.sample(nodes, len(nodes))

    assert static_partition(shuffled, hp_frac) == static_partition(nodes, hp_frac)


@quick
@given(clusters, fractions, fractions)
def test_who_performs_still_performs_when_more_shall(
    nodes: list[Candidate], one: float, other: float
) -> None:
    assert performing(nodes, min(one, other)) <= performing(nodes, max(one, other))


@quick
@given(clusters, st.integers(0, 12))
def test_no_family_is_left_out_while_there_are_slots(nodes: list[Candidate], count: int) -> None:
    profiles = assigned(nodes, count)
    families = {each.family for each in nodes}
    served = {each.family for each in nodes if profiles[each.name] == "performance"}

    assert len(served) == min(count, len(families), len(nodes))
