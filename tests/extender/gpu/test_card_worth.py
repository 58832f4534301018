"""The bound on the parts of cards in use is that of the best packing, and prices prove it."""

from collections.abc import Mapping
from zlib import crc32

import numpy as np
import pytest

from joulie_extender.gpu.card_worth import PARTS, prices_of

BOUNDS = [
    ({100: 0.5}, 50.0),
    ({100: 2.0}, 100.0),
    ({60: 1.0}, 60.0),
    ({60: 5.0}, 60.0),
    ({50: 3.0}, 100.0),
    ({50: 1.0}, 50.0),
    ({60: 1.0, 40: 1.0}, 100.0),
    ({60: 2.0, 40: 0.5}, 80.0),  # half of the cards hold both
    ({34: 9.0}, 68.0),
    ({34: 9.0, 32: 0.25}, 76.0),  # two of 34 and one of 32 on a quarter of the cards
    ({1: 7.0}, 7.0),
    ({70: 1.0, 30: 0.5, 20: 1.0}, 96.25),  # 100 on five eighths of the cards, else 70 and 20
    ({20: 1.0, 40: 1.0, 90: 0.5}, 96.0),  # half hold 40, 40 and 20, a tenth five of 20, others 90
    ({99: 0.95, 1: 5.0}, 99.05),  # 99 and 1 on 95 of 100 cards, and four more of 1 on the others
]


@pytest.mark.parametrize(("demand", "bound"), BOUNDS)
def test_the_bound_is_what_the_best_packing_uses(demand: Mapping[int, float], bound: float) -> None:
    assert prices_of(demand).bound == pytest.approx(bound)


@pytest.mark.parametrize(("demand", "bound"), BOUNDS)
def test_a_larger_rest_is_worth_no_less_and_never_more_than_its_parts(
    demand: Mapping[int, float], bound: float
) -> None:
    worth = prices_of(demand).worth

    assert len(worth) == PARTS + 1
    assert worth[0] == 0.0
    assert list(worth) == sorted(worth)
    assert all(value <= rest + 1e-9 for rest, value in enumerate(worth))
    assert worth[PARTS] <= bound + 1e-9
    assert not any(worth[: min(demand)])


def test_a_rest_is_worth_nothing_once_all_pods_have_a_place() -> None:
    assert not any(prices_of({60: 0.5}).worth)
    assert prices_of({60: 5.0}).worth[59:61] == (0.0, 60.0)
    assert prices_of({50: 3.0}).worth[50] == pytest.approx(50.0)


def test_the_smallest_rest_is_of_use_to_pods_that_ask_for_as_little() -> None:
    assert prices_of({1: 200.0}).worth[1] > 0


def test_prices_stay_the_same_bit_for_bit() -> None:
    """A replay computes old scores from them. Several prices are optimal for these demands."""
    demands = (
        {10: 1.56, 18: 0.36, 21: 0.05, 80: 2.18, 98: 0.56},
        {4: 0.96, 39: 2.08},
        {10: 0.35, 15: 0.36, 19: 1.86, 57: 0.94},
    )
    found = [np.array(prices_of(demand)[1]).tobytes() for demand in demands]

    assert [crc32(worth) for worth in found] == [234091265, 1236821798, 1304618753]
