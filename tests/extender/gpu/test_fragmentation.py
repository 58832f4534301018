"""The cost of a placement for the pods that arrive later, and what it learns from arrivals."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_extender.gpu.card_worth import prices_of
from joulie_extender.gpu.demand import NodeKind, PoolKinds, need_of, terms_of, worth_of
from joulie_extender.gpu.fragmentation import NEVER, CostCache, Measure
from joulie_extender.gpu.pool import Pool, PoolNode
from joulie_extender.gpu.shapes import Shape
from joulie_projections.state.gpu_arrivals import (
    PRIOR,
    GpuArrivals,
    GpuDemand,
    GpuShape,
    with_pod,
)
from joulie_projections.twin.arrays import Ints

WHOLE = Shape(8000, 1024, 1, 1000)
EIGHT = PoolNode(96_000, 786_432, 8, "A100")
TWO = PoolNode(104_000, 524_288, 2, "T4")
MB = 40_000


def arrived(*shapes: Shape, times: int = 200) -> GpuDemand:
    arrivals = PRIOR
    for _ in range(times):
        for shape in shapes:
            asked = GpuShape(shape.milli, shape.cards, shape.share)
            arrivals = with_pod(arrivals, asked, shape.models[0] if shape.models else "")
    return GpuDemand(arrivals, arrivals.sizes)


def kinds_of(pool: Pool, *total_mb: int) -> PoolKinds:
    cards = np.bincount(pool.model, pool.cards, len(pool.models)).astype(int)
    nodes = zip(pool.model.tolist(), pool.milli.tolist(), pool.cards.tolist(), strict=True)
    return PoolKinds(
        tuple(pool.models),
        total_mb or (MB,) * len(pool.models),
        tuple(cards.tolist()),
        tuple(sorted({NodeKind(*kind) for kind in nodes})),
    )


def measure_of(demand: GpuDemand, pool: Pool) -> Measure:
    kinds = kinds_of(pool)
    return Measure(terms_of(demand, kinds, worth_of(demand.priced, kinds)))


def cards_at(pool: Pool, shape: Shape, row: int, card: Ints) -> list[int]:
    fitting: list[int] = np.flatnonzero(pool.rest[row] >= shape.share).tolist()
    return [int(card[row])] if shape.cards == 1 else fitting[: shape.cards]


def best(pool: Pool, shape: Shape, demand: GpuDemand) -> tuple[int, list[int]]:
    costs = measure_of(demand, pool).costs(pool, shape, np.arange(len(pool.nodes)))
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
    measure = measure_of(arrived(), pool)
    for wrong in (
        WHOLE._replace(models=("H100",)),
        WHOLE._replace(milli=105_000),
        WHOLE._replace(memory_mib=10**6),
        WHOLE._replace(cards=3),
        WHOLE._replace(cards=9),
    ):
        assert measure.costs(pool, wrong, np.arange(1)).cost.tolist() == [NEVER]
    assert measure.costs(pool, WHOLE, np.arange(1)).cost[0] < NEVER


def test_a_request_for_memory_counts_as_the_part_of_a_card_that_it_takes_of_each_model() -> None:
    pool = Pool([EIGHT, EIGHT._replace(model="T4")])
    kinds = kinds_of(pool, 40_000, 10_000)
    arrivals = with_pod(GpuArrivals(), GpuShape(4000, 1, 0, 8000), "")
    one = terms_of(GpuDemand(arrivals, arrivals.sizes), kinds, worth_of(PRIOR.sizes, kinds)).one

    assert np.flatnonzero(one[0, 4])[0] == 20  # 8,000 of 40,000 MB
    assert np.flatnonzero(one[1, 4])[0] == 80
    assert not one[:, 3].any()  # with fewer cores the pod does not fit


def test_the_need_of_cores_is_the_mean_of_all_pods_that_ask_for_gpus() -> None:
    heavy = arrived(Shape(32_000, 0, 1, 500), times=10_000)

    assert need_of(heavy.arrivals, kinds_of(Pool([EIGHT]))) == pytest.approx(64, rel=0.01)


def test_cached_costs_equal_costs_computed_anew() -> None:
    pool = Pool([EIGHT, TWO] * 20)
    measure = measure_of(arrived(WHOLE), pool)
    cache, rows = CostCache(partial(measure.costs, pool), 40), np.arange(40)
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
