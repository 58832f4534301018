"""A plan of few moves in the published simulation."""

import pytest

from joulie_extender.gpu.pool import Pool, PoolNode
from joulie_extender.gpu.shapes import Shape
from joulie_simulator.gpu_packing.defragmented import PER_CENT, DefragmentedRow, defragmented
from joulie_simulator.gpu_packing.published import Place, placed
from joulie_simulator.gpu_packing.published_policies import POLICIES, Joulie

G2 = PoolNode(96_000, 393_216, 8, "G2")
PODS = (
    [Shape(11_000, 30_000, 1, 1000)] * 10
    + [Shape(4000, 15_000, 1, 810)] * 4
    + [Shape(24_000, 30_000, 1, 470)] * 3
    + [Shape(64_000, 200_000, 8, 1000)]
    + [Shape(8000, 15_000, 0, 0)] * 3
)


def row_of(name: str, nodes: int = 60) -> DefragmentedRow:
    pool = Pool([G2] * nodes)
    return defragmented(name, POLICIES[name](pool, PODS, 1), pool, PODS, (1, 100))


@pytest.mark.parametrize("name", ["random", "kube-default"])
def test_one_pod_in_a_hundred_moves_and_more_cards_are_whole_and_fewer_gpus_of_no_use(
    name: str,
) -> None:
    row = row_of(name)

    assert 0 < row.moved <= row.pods // PER_CENT
    assert row.unusable_after < row.unusable
    assert row.cards_after > row.cards


@pytest.mark.parametrize("name", ["random", "kube-default", "joulie"])
def test_a_plan_that_is_carried_out_keeps_most_of_its_gain_whoever_places_the_pods(
    name: str,
) -> None:
    row = row_of(name)
    gain = row.unusable - row.unusable_after

    assert row.unusable - row.unusable_carried_out >= gain / 2
    assert row.unusable - row.unusable_by_joulie >= gain / 2


def test_with_too_few_pods_none_is_moved_and_nothing_changes() -> None:
    row = row_of("random", 4)

    assert row.pods < PER_CENT
    assert (row.moved, row.unusable_after, row.cards_after) == (0, row.unusable, row.cards)
    assert row.unusable_carried_out == row.unusable_by_joulie == row.unusable
    assert row.waiting == 0


def test_joulie_follows_what_another_policy_places_and_what_leaves() -> None:
    pool, one = Pool([PoolNode(96_000, 393_216, 2, "G2")]), Shape(1000, 1000, 1, 1000)
    joulie = Joulie(pool, [one], 1)
    pool.take(one, 0, [0])
    joulie.follow(one, 0, [0])

    second = placed(joulie, pool, one)
    pool.free_milli[0] += 1000
    pool.rest[0, 0] += 1000
    joulie.left(0, 0, [0])
    third = placed(joulie, pool, one)

    assert (second, third) == (Place(0, [1]), Place(0, [0]))
