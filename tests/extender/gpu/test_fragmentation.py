"""The cost of a placement for the pods that arrive later, and what it learns from arrivals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_extender.gpu.card_worth import prices_of
from joulie_extender.gpu.fragmentation import (
    NEVER,
    CostCache,
    Measure,
    TermWeights,
    terms_of,
    worth_of,
)
from joulie_extender.gpu.learned import Learned
from joulie_extender.gpu.pool import Pool, PoolNode
from joulie_extender.gpu.rehearsal import CANDIDATES, cards_at, rehearsed
from joulie_extender.gpu.shapes import MOST_SHAPES, Arrivals, Shape

WHOLE = Shape(8000, 1024, 1, 1000)
EIGHT = PoolNode(96_000, 786_432, 8, "A100")
TWO = PoolNode(104_000, 524_288, 2, "T4")


def arrived(*shapes: Shape, times: int = 200) -> Arrivals:
    arrivals = Arrivals()
    for _ in range(times):
        for shape in shapes:
            arrivals.count(shape)
    return arrivals


def measure_of(arrivals: Arrivals, pool: Pool, weights: TermWeights | None = None) -> Measure:
    terms = terms_of(arrivals, pool, worth_of(arrivals))
    return Measure(terms, weights or TermWeights())


def best(pool: Pool, shape: Shape, arrivals: Arrivals) -> tuple[int, list[int]]:
    costs = measure_of(arrivals, pool).costs(pool, shape, np.arange(len(pool.nodes)))
    row = int(costs.cost.argmin())
    return row, cards_at(pool, shape, row, costs.card)


def test_a_rest_that_no_pod_asks_for_is_worth_nothing() -> None:
    prices = prices_of({81: 0.5, 19: 0.8, 100: 0.5})

    assert prices.worth[18] == 0
    assert prices.worth[19] > 0
    assert prices.worth[100] == max(prices.worth)


def test_the_bound_is_what_patterns_of_cards_can_hold() -> None:
    assert prices_of({60: 2.0}).bound == pytest.approx(60)  # one on each card
    assert prices_of({60: 1.0, 40: 1.0}).bound == pytest.approx(100)
    assert prices_of({50: 0.5}).bound == pytest.approx(25)  # all that is asked for


@given(st.dictionaries(st.integers(1, 100), st.floats(0.01, 3.0), min_size=1, max_size=8))
def test_no_bound_exceeds_the_demand_or_the_card(demand: dict[int, float]) -> None:
    bound = prices_of(demand).bound

    assert bound <= 100 + 1e-6
    assert bound <= sum(size * cards for size, cards in demand.items()) + 1e-6


def test_a_share_takes_the_card_whose_rest_is_of_least_use() -> None:
    pool = Pool([EIGHT])
    large, small = Shape(4000, 1024, 1, 810), Shape(4000, 1024, 1, 190)
    pool.take(large, 0, [3])

    assert best(pool, small, arrived(large, small)) == (0, [3])


def test_a_pod_with_many_cores_goes_to_the_node_that_has_cores_to_spare() -> None:
    heavy = Shape(40_000, 1024, 1, 1000)

    assert best(Pool([EIGHT, TWO]), heavy, arrived(WHOLE, heavy))[0] == 1


def test_a_pod_without_a_model_leaves_the_model_that_others_wait_for() -> None:
    pool = Pool([EIGHT, EIGHT._replace(model="H100")])
    bound = WHOLE._replace(models=("A100",))

    assert best(pool, WHOLE, arrived(bound, WHOLE))[0] == 1
    assert best(pool, bound, arrived(bound, WHOLE))[0] == 0


def test_a_pod_never_fits_without_its_model_cores_memory_or_cards() -> None:
    pool = Pool([TWO])
    measure = measure_of(Arrivals(), pool)
    for wrong in (
        WHOLE._replace(models=("H100",)),
        WHOLE._replace(milli=105_000),
        WHOLE._replace(memory_mib=10**6),
        WHOLE._replace(cards=3),
        WHOLE._replace(cards=9),
    ):
        assert measure.costs(pool, wrong, np.arange(1)).cost.tolist() == [NEVER]
    assert measure.costs(pool, WHOLE, np.arange(1)).cost[0] < NEVER


def test_counts_stay_bounded_and_keep_the_shapes_of_many_gpus() -> None:
    arrivals = Arrivals()
    large = Shape(64_000, 0, 8, 1000)
    arrivals.count(large)
    for milli in range(1000):
        arrivals.count(Shape(milli, 0, 1, 10, (f"M{milli}",)))

    assert len(arrivals.shapes()) <= MOST_SHAPES
    assert len(arrivals.models()) <= MOST_SHAPES
    assert large in dict(arrivals.shapes())


def test_the_counts_do_not_depend_on_the_order_of_arrival() -> None:
    shapes = [Shape(1000 * at, 0, 1, 1000) for at in range(20)]
    one, other = arrived(*shapes, times=1), arrived(*reversed(shapes), times=1)

    assert one.shapes() == other.shapes()
    assert one.demand() == other.demand()
    assert one.need() == other.need()


def test_cached_costs_equal_costs_computed_anew() -> None:
    pool = Pool([EIGHT, TWO] * 20)
    measure = measure_of(arrived(WHOLE), pool)
    cache, rows = CostCache(pool, measure.costs), np.arange(40)
    shapes = [
        WHOLE,
        Shape(4000, 1024, 1, 300),
        Shape(16_000, 1024, 2, 1000),
        Shape(8000, 1024, 0, 0),
    ]
    for at in range(200):
        shape = shapes[at % 4]
        costs = cache.of(shape)
        fresh = measure.costs(pool, shape, rows)
        assert costs.cost.tolist() == fresh.cost.tolist()
        row = int(costs.cost.argmin())
        if costs.cost[row] < NEVER:
            pool.take(shape, row, cards_at(pool, shape, row, costs.card))
            cache.change(row)


def test_the_rehearsal_raises_the_need_of_cores_where_pods_ask_for_many() -> None:
    pool = Pool([EIGHT] * 60 + [TWO] * 40)
    heavy, light = Shape(40_000, 1024, 1, 1000), Shape(6000, 1024, 1, 1000)
    arrivals = arrived(heavy, light, light)

    assert rehearsed(arrivals, pool, worth_of(arrivals)) in CANDIDATES
    assert rehearsed(arrivals, pool, worth_of(arrivals)) == rehearsed(
        arrivals, pool, worth_of(arrivals)
    )


def test_the_same_arrivals_give_the_same_weights_and_costs() -> None:
    found = []
    for _ in range(2):
        learned = Learned(Pool([EIGHT] * 20 + [TWO] * 20))
        for at in range(1100):
            learned.arrive(Shape(2000 * (at % 7 + 1), 0, 1, 1000 if at % 3 else 300))
        found.append((learned.weights, learned.cache.of(WHOLE).cost.tobytes()))

    assert found[0] == found[1]
