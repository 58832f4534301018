"""The bound on the parts of cards in use is that of the best packing, and prices prove it."""

from collections.abc import Mapping

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
