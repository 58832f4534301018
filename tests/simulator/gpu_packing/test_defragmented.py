"""A plan of few moves in the published simulation."""

import pytest

from joulie_extender.gpu.pool import Pool, PoolNode
from joulie_extender.gpu.shapes import Shape
from joulie_simulator.gpu_packing.defragmented import PER_CENT, DefragmentedRow, defragmented
from joulie_simulator.gpu_packing.published_policies import POLICIES

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


def test_with_too_few_pods_none_is_moved_and_nothing_changes() -> None:
    row = row_of("random", 4)

    assert row.pods < PER_CENT
    assert (row.moved, row.unusable_after, row.cards_after) == (0, row.unusable, row.cards)
    assert row.waiting == 0
