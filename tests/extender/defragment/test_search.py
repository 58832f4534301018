"""Which pods a plan moves so that free GPUs are of use."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_extender.defragment.fleet import NOT_ALLOWED, Fleet, Move, Need, Occupant
from joulie_extender.defragment.search import Budget, Usable, planned_moves, summary_of
from joulie_extender.gpu.fragmentation import usable_by
from joulie_extender.gpu.shapes import CARD, Shape

WIDTH = 8
ONE = Need(4000, 1024, 1, (CARD, CARD))
ANY = np.ones(2)
# Half of the pods ask for a card, the others for all cards of a node.
ONES_AND_EIGHTS = Usable(
    *usable_by([(Shape(4000, 0, 1, CARD), ANY / 2), (Shape(32_000, 0, 8, CARD), ANY / 2)], 2, 8)
)


def fleet_of(nodes: int, *, cores: int = 96, cards: int = WIDTH) -> Fleet:
    rest = np.where(np.arange(WIDTH) < cards, CARD, 0) * np.ones((nodes, 1), np.int64)
    return Fleet(
        model=np.zeros(nodes, np.int64),
        free_milli=np.full(nodes, cores * 1000),
        held_back=np.zeros(nodes, np.int64),
        free_memory=np.full(nodes, 1_000_000),
        rest=rest,
        users=np.zeros_like(rest),
        whole=rest.copy(),
        group=np.zeros_like(rest),
        is_open=np.ones(nodes, np.bool_),
    )


def bound(fleet: Fleet, row: int, need: Need, cards: Sequence[int] = (), uid: str = "") -> Occupant:
    fleet.free_milli[row] -= need.milli
    fleet.free_memory[row] -= need.memory_mib
    for card in cards:
        fleet.rest[row, card] -= need.shares[0]
        fleet.users[row, card] += 1
    return Occupant(uid or f"{row}/{cards}", row, need, tuple(cards))


def same(one: Fleet, other: Fleet) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_pods_of_one_card_move_together_where_each_alone_would_gain_nothing() -> None:
    fleet = fleet_of(2)
    pods = [bound(fleet, row, ONE, [card]) for row in (0, 1) for card in range(4)]
    alone = fleet.copied()

    assert planned_moves(alone, ONES_AND_EIGHTS, pods, 1) == []
    moves = planned_moves(fleet, ONES_AND_EIGHTS, pods, 8)

    assert len(moves) == 4
    assert len({move.occupant.row for move in moves}) == 1
    assert summary_of(fleet, ONES_AND_EIGHTS).nodes == 1


def test_a_pod_without_cards_leaves_cores_to_the_cards_of_its_node() -> None:
    fleet = fleet_of(2)
    fleet.rest[1] = fleet.whole[1] = 0  # a node without cards
    hungry = bound(fleet, 0, Need(95_000, 1024, 0, (0, 0)))

    assert summary_of(fleet, ONES_AND_EIGHTS).unusable == 8
    assert planned_moves(fleet, ONES_AND_EIGHTS, [hungry], 1) == [Move(hungry, 1, ())]
    assert summary_of(fleet, ONES_AND_EIGHTS).unusable == 0


def test_a_share_fills_the_rest_of_another_card() -> None:
    usable = Usable(*usable_by([(Shape(1000, 0, 1, CARD), ANY)], 2, 8))
    fleet, half = fleet_of(2, cards=1), Need(1000, 1024, 1, (500, 500))
    pods = [bound(fleet, row, half, [0]) for row in (0, 1)]

    assert len(planned_moves(fleet, usable, pods, 2)) == 1
    assert sorted(fleet.rest[:, 0].tolist()) == [0, CARD]


@pytest.mark.parametrize("name", ["is_open", "free_memory", "held_back", "model"])
def test_no_pod_moves_where_it_does_not_fit(name: str) -> None:
    fleet = fleet_of(2)
    fleet.rest[1] = fleet.whole[1] = 0
    hungry = bound(fleet, 0, Need(95_000, 1024, 0, (0, NOT_ALLOWED)))
    values = {"is_open": False, "free_memory": 1000, "held_back": 2000, "model": 1}
    getattr(fleet, name)[1] = values[name]
    if name == "model":  # a model that the pod does not allow
        fleet.rest[1] = fleet.whole[1] = CARD
        hungry = hungry._replace(need=Need(95_000, 1024, 1, (CARD, NOT_ALLOWED)), cards=(0,))
        fleet.rest[0, 0], fleet.users[0, 0] = 0, 1

    assert planned_moves(fleet, ONES_AND_EIGHTS, [hungry], 1) == []


def test_budgets_of_disruptions_are_kept() -> None:
    fleet = fleet_of(4)
    pods = [bound(fleet, row, ONE, [card]) for row in range(4) for card in range(4)]
    uids = frozenset(each.uid for each in pods)

    assert planned_moves(fleet.copied(), ONES_AND_EIGHTS, pods, 16)
    assert not planned_moves(fleet, ONES_AND_EIGHTS, pods, 16, [Budget("team/b", 3, uids)])


def test_a_linked_group_counts_only_if_all_of_its_cards_are_free_and_healthy() -> None:
    fleet = fleet_of(1)
    fleet.group[0] = [1, 1, 1, 1, 2, 2, 2, 2]

    assert summary_of(fleet, ONES_AND_EIGHTS).groups == 2
    fleet.rest[0, 5] = fleet.whole[0, 5] = 0  # not healthy
    assert summary_of(fleet, ONES_AND_EIGHTS).groups == 1
    fleet.rest[0, 0] = 500
    assert summary_of(fleet, ONES_AND_EIGHTS)[3:] == (6, 0, 0)


NEEDS = st.sampled_from(
    [ONE, Need(2000, 1, 1, (300, 300)), Need(9000, 1, 0, (0, 0)), Need(8000, 1, 2, (CARD, CARD))]
)


@given(placed=st.lists(st.tuples(st.integers(0, 3), NEEDS), max_size=24), most=st.integers(0, 9))
def test_a_plan_moves_few_pods_once_and_loses_nothing(
    placed: list[tuple[int, Need]], most: int
) -> None:
    fleet, pods = fleet_of(4, cores=48, cards=4), list[Occupant]()
    for uid, (row, need) in enumerate(placed):
        cards = np.flatnonzero(fleet.rest[row] >= max(1, need.shares[0])).tolist()[: need.cards]
        if len(cards) == need.cards and fleet.free_milli[row] >= need.milli:
            pods.append(bound(fleet, row, need, cards, str(uid)))
    before, start = fleet.copied(), _lost(fleet)

    moves = planned_moves(fleet, ONES_AND_EIGHTS, pods, most)

    assert len(moves) <= most
    assert len({move.occupant.uid for move in moves}) == len(moves)
    assert (fleet.free_milli >= 0).all()
    assert (fleet.rest >= 0).all()
    assert _lost(fleet) <= start - 99 * len(moves)  # of at least a tenth of a GPU for each
    for move in moves:
        before.move(move)
    assert same(before, fleet)
    for move in reversed(moves):
        fleet.undo(move)
    assert same(fleet, _again(pods))


def _again(pods: list[Occupant]) -> Fleet:
    fleet = fleet_of(4, cores=48, cards=4)
    for each in pods:
        bound(fleet, each.row, each.need, each.cards)
    return fleet


def _lost(fleet: Fleet) -> float:
    return float(ONES_AND_EIGHTS.lost(fleet.model, fleet.free_milli, fleet.rest).sum())
