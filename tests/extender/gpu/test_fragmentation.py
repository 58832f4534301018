"""The cost of a placement for the pods that arrive later, and what it learns from arrivals."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_extender.gpu.card_worth import prices_of
from joulie_extender.gpu.demand import (
    InUse,
    NodeKind,
    PoolKinds,
    cores_run_out,
    need_of,
    share_of,
    terms_of,
    wanted_cores,
    worth_of,
)
from joulie_extender.gpu.fragmentation import (
    MOST_KEPT,
    NEVER,
    CostCache,
    Costs,
    Measure,
    Terms,
    TermWeights,
    usable_by,
)
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
NOTHING = PoolKinds((), (), (), ())


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
    counts = Counter(NodeKind(*kind) for kind in nodes)
    return PoolKinds(
        tuple(pool.models),
        total_mb or (MB,) * len(pool.models),
        tuple(cards.tolist()),
        tuple(kind for kind, _ in sorted(counts.items())),
        (),
        tuple(count * kind.cards for kind, count in sorted(counts.items())),
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
    assert one[0, 4, 20] == 200.0, "this pod, always, on a fifth of a card"


def test_a_request_for_all_memory_of_a_card_counts_as_the_card() -> None:
    pool = Pool([EIGHT, EIGHT._replace(model="T4")])
    kinds = kinds_of(pool, 40_000, 10_000)
    arrivals = with_pod(GpuArrivals(), GpuShape(4000, 1, 0, 10_000), "")
    one = terms_of(GpuDemand(arrivals, arrivals.sizes), kinds, worth_of(PRIOR.sizes, kinds)).one

    assert one[1, 4, 99:].tolist() == [0.0, 1000.0]


def test_memory_counts_as_no_part_where_no_card_is_known() -> None:
    assert share_of(300, 8000, 0) == 300
    assert share_of(0, 8000, 40_000) == 200
    assert share_of(300, 8000, 40_000) == 300, "the larger part"


def test_one_pod_of_200_is_assumed_to_take_a_whole_node_of_each_kind() -> None:
    """With as many cores as count, if the node has more."""
    pool = Pool([EIGHT._replace(milli=256_000), TWO])
    kinds = kinds_of(pool)
    many = terms_of(GpuDemand(GpuArrivals(), {}), kinds, worth_of({}, kinds)).many

    assert many[0, 127:, 8].tolist() == [0.0, 8000 / 200]
    assert many[1, 103:105, 2].tolist() == [0.0, 2000 / 200]
    assert many[0, 104, 2] == 0.0, "of one kind on another"


def test_the_rest_of_a_card_is_worth_what_the_scarcest_pods_could_use_of_it() -> None:
    """All of the pods of 60 find a place, beside one of 40, and some of the 40 do not."""
    kinds = kinds_of(Pool([EIGHT]))
    worth = worth_of({"600/0": 1, "400/0": 2}, kinds)

    assert worth[[39, 40, 60, 79, 80, 100]] == pytest.approx([0, 400, 400, 400, 800, 800])


def test_each_part_is_of_use_where_pods_fill_all_cards() -> None:
    """One of 60 with two of 20: with two and three of them, some of the 60 would have no place."""
    worth = worth_of({"600/0": 1, "200/0": 2}, kinds_of(Pool([EIGHT])))

    assert worth[[20, 60, 100]] == pytest.approx([200, 600, 1000])


def test_sizes_that_take_the_same_hundredths_of_a_card_count_together() -> None:
    kinds = kinds_of(Pool([EIGHT]))

    apart, together = {"600/0": 1, "391/0": 1, "400/0": 1}, {"600/0": 1, "400/0": 2}

    assert worth_of(apart, kinds).tolist() == worth_of(together, kinds).tolist()


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


# --- the cost, by its definition ----------------------------------------------------------------


def usable_and_stranded(terms: Terms, pool: Pool, row: int) -> tuple[float, float]:
    """What later pods can use of a node, as the text of the module weighs it, and what they lack
    cores for."""
    cores, model = min(int(pool.free_milli[row]) // 1000, 128), pool.model[row]
    rests = pool.rest[row].tolist()
    usable = sum(terms.one[model, cores, rest // 10] for rest in rests)
    usable += terms.many[model, cores, rests.count(1000)]
    worth = sum(terms.worth[rest // 10] for rest in rests)
    stranded = max(0.0, sum(rests) - pool.free_milli[row] / (terms.need))
    return 0.2 * usable + 4.0 * worth, stranded


def test_a_cost_is_what_later_pods_lose_by_the_placement() -> None:
    part, pair = Shape(4000, 1024, 1, 300), Shape(16_000, 1024, 2, 1000)
    pool = Pool([EIGHT, TWO, EIGHT])
    pool.take(part, 0, [2])
    pool.take(Shape(60_000, 0, 1, 1000), 2, [0])
    pool.take(Shape(88_000, 0, 0, 0), 1, [])  # leaves the cores of one pair
    bound = WHOLE._replace(models=("T4",))
    kinds, demand = kinds_of(pool), arrived(part, pair, WHOLE, bound)
    terms = terms_of(demand, kinds, worth_of(demand.priced, kinds))
    for shape in (part, pair, WHOLE, Shape(12_000, 1024, 0, 0)):
        costs = Measure(terms).costs(pool, shape, np.arange(3))
        for row in range(3):
            before, after = usable_and_stranded(terms, pool, row), taken(pool, shape, row, costs)
            later = usable_and_stranded(terms, after, row)
            price = terms.price[pool.model[row]] * shape.gpu_milli
            wanted = before[0] - later[0] + later[1] - before[1] + price
            assert costs.cost[row] == pytest.approx(wanted, rel=1e-3, abs=0.05), (shape, row)
    assert terms.price.max() > 0


def test_a_model_costs_the_demand_bound_to_it_by_its_share_of_the_cards() -> None:
    """Half of the demand is bound to a fifth of the cards."""
    kinds, asked = kinds_of(Pool([EIGHT, TWO])), GpuShape(8000, 1, 1000)
    arrivals = with_pod(with_pod(GpuArrivals(), asked, "T4"), asked, "")
    terms = terms_of(GpuDemand(arrivals, arrivals.sizes), kinds, worth_of(PRIOR.sizes, kinds))

    assert terms.price.tolist() == [0.0, 2.5]


def test_the_only_card_of_a_model_costs_the_demand_bound_to_it_too() -> None:
    """Half of the demand is bound to one of ten cards."""
    pool = Pool([EIGHT, PoolNode(8000, 1024, 1, "L4"), PoolNode(8000, 1024, 1, "T4")])
    kinds, asked = kinds_of(pool), GpuShape(8000, 1, 1000)
    arrivals = with_pod(with_pod(GpuArrivals(), asked, "T4"), asked, "")
    terms = terms_of(GpuDemand(arrivals, arrivals.sizes), kinds, worth_of(PRIOR.sizes, kinds))

    assert terms.price.tolist() == [0.0, 0.0, 5.0]


def taken(pool: Pool, shape: Shape, row: int, costs: Costs) -> Pool:
    after = Pool(pool.nodes)
    after.rest, after.free_milli = pool.rest.copy(), pool.free_milli.copy()
    cards = cards_at(pool, shape, row, costs.card) if shape.cards else []
    after.take(shape, row, cards)
    return after


def test_a_pod_fits_into_exactly_what_is_free() -> None:
    pool, all_of_it = Pool([TWO]), Shape(104_000, 524_288, 2, 1000)
    measure = measure_of(arrived(), pool)

    assert measure.costs(pool, all_of_it, np.arange(1)).cost[0] < NEVER


def tables(*wanted: Shape, need: float = 0.0) -> Terms:
    """Of pods that are equally frequent, on models of which only the second is theirs."""
    one, many = usable_by([(shape, np.array([0.0, 1.0])) for shape in wanted], 2, 8)
    return Terms(one, many, np.zeros(101), np.zeros(2), need)


SECOND = PoolNode(16_000, 1024, 1, "T4")


def test_a_card_beside_less_than_one_core_is_of_no_use() -> None:
    """A fifth of the card is the weight; so few cores are needed that none are stranded."""
    pool = Pool([EIGHT, SECOND._replace(milli=1500)])
    measure = Measure(tables(Shape(1000, 0, 1, 1000)))

    found = measure.costs(pool, Shape(1000, 0, 0, 0), np.array([1]))

    assert found.cost.tolist() == [200.0]


def test_cards_are_stranded_as_far_as_their_cores_are_gone() -> None:
    """The cores of half a card are left for one card."""
    pool = Pool([EIGHT, SECOND])
    measure = Measure(tables(need=16.0))

    found = measure.costs(pool, Shape(8000, 0, 0, 0), np.array([1]))

    assert found.cost.tolist() == [500.0]


def test_a_cost_is_a_multiple_of_a_fixed_grain() -> None:
    """Then a sum has the same bits in any order."""
    pool = Pool([EIGHT, SECOND])
    measure = Measure(tables(need=15.0))

    found = measure.costs(pool, Shape(8003, 0, 0, 0), np.array([1])).cost * 1024

    assert found.tolist() == np.rint(found).tolist()


def test_a_card_costs_what_the_cores_that_are_left_could_use_of_it() -> None:
    pool = Pool([EIGHT, SECOND._replace(milli=12_000)])
    measure = Measure(tables(Shape(8000, 0, 1, 1000)))

    with_cores = measure.by_card(pool, Shape(4000, 0, 1, 1000), 1)
    without = measure.by_card(pool, Shape(8000, 0, 1, 1000), 1)

    assert [with_cores[0], without[0]] == [200.0, 0.0]


def test_a_share_keeps_whole_cards_together_for_pods_of_several() -> None:
    """The two whole cards stay of use, with a fifth as the weight, if it takes the third."""
    pool = Pool([EIGHT, SECOND._replace(cards=3)])
    share = Shape(1000, 0, 1, 500)
    pool.take(share, 1, [2])

    found = Measure(tables(Shape(1000, 0, 2, 1000))).by_card(pool, share, 1)

    assert found[:3].tolist() == [0.0, 0.0, -400.0]


def test_a_pool_has_a_place_for_each_card_of_its_largest_node() -> None:
    assert Pool([SECOND, SECOND._replace(cards=2)]).rest.tolist() == [[1000, 0], [1000, 1000]]
    assert Pool([SECOND._replace(cards=0)]).rest.tolist() == [[0]]


# --- the cache ----------------------------------------------------------------------------------


class Counted:
    """An evaluation that counts the rows that it computes."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, shape: int, rows: Ints) -> Costs:
        self.rows += len(rows)
        return Costs(np.full(len(rows), float(shape)), np.zeros(len(rows), np.int64))


def test_a_cache_computes_only_the_rows_that_changed() -> None:
    evaluate = Counted()
    cache = CostCache[int](evaluate, 40)
    cache.of(1)
    cache.of(2)
    cache.change(7)
    cache.change(7)
    cache.of(1)
    cache.of(2)
    cache.of(1)

    assert evaluate.rows == 40 + 40 + 1 + 1


@pytest.mark.parametrize(("changes", "rows"), [(10, 1), (11, 10)])
def test_a_cache_computes_all_rows_after_more_changes_than_rows(changes: int, rows: int) -> None:
    evaluate = Counted()
    cache = CostCache[int](evaluate, 10)
    cache.of(1)
    for _ in range(changes):
        cache.change(3)
    evaluate.rows = 0
    cache.of(1)

    assert evaluate.rows == rows


def test_a_cache_begins_anew_when_it_holds_the_most_shapes() -> None:
    evaluate = Counted()
    cache = CostCache[int](evaluate, 10)
    for shape in range(MOST_KEPT):
        cache.of(shape)
    cache.of(0)
    evaluate.rows = 0
    cache.of(1)

    assert evaluate.rows == 10, "it was dropped"


def test_a_cache_begins_anew_after_many_changes() -> None:
    evaluate = Counted()
    cache = CostCache[int](evaluate, 10)
    cache.of(1)
    for _ in range(16 * 10 + 1):
        cache.change(3)
    cache.of(2)
    evaluate.rows = 0
    cache.of(1)

    assert evaluate.rows == 10, "it was dropped"


@pytest.mark.parametrize(
    ("mean", "need"),
    [(10.0, 9.2), (11.3, 10.396), (11.5, 19.2), (16.0, 19.2), (20.0, 24.0)],
    ids=str,
)
def test_the_need_is_below_the_mean_or_far_above_what_most_cards_have(
    mean: float, need: float
) -> None:
    """Most cards have 12 cores. In between, empty nodes would count as without cores."""
    kinds = NOTHING._replace(usual_need=12.0)
    assert wanted_cores(mean, kinds) == pytest.approx(need)
    assert wanted_cores(mean, NOTHING, is_short_of_cores=True) == 0.92 * mean


def test_the_need_is_far_above_what_most_cards_have_where_cores_run_out() -> None:
    kinds = NOTHING._replace(usual_need=12.0)

    assert wanted_cores(10.0, kinds, is_short_of_cores=True) == pytest.approx(19.2)
    assert wanted_cores(20.0, kinds, is_short_of_cores=True) == pytest.approx(24.0)


ALL = {"all_milli": 1_600_000, "all_gpu": 100_000}  # 16 cores for each card


@pytest.mark.parametrize(
    ("milli", "gpu", "on_each", "run_out"),
    [
        (0, 0, 0, False),
        (500_000, 50_000, 0, False),  # pods with GPUs alone, and 10 cores for each
        (700_000, 50_000, 0, False),
        (800_000, 50_000, 0, True),  # others take 6 beside
        (80_000, 5_000, 0, True),
        (30_000, 1_000, 0, False),  # a few pods
        (64_000, 0, 64_000, False),  # DaemonSets, on all nodes alike
        (140_000, 10_000, 40_000, False),
        (140_000, 10_000, 0, False),
        (1_590_000, 90_000, 1_500_000, True),  # a full cluster: not by DaemonSets alone
    ],
    ids=str,
)
def test_cores_run_out_if_pods_come_that_take_as_much_beside_the_cards_as_those_that_run(
    milli: int, gpu: int, on_each: int, run_out: bool
) -> None:
    used = InUse(milli=milli, gpu=gpu, on_each=on_each, **ALL)

    assert cores_run_out(used, 10.0) == run_out


def test_cores_that_are_unknown_do_not_run_out() -> None:
    assert not cores_run_out(InUse(0, 0, 0, 0, 0), 10.0)


RARE = Shape(120_000, 1024, 8, 1000)  # on the one node of 128 cores
FLEET = Pool([*[EIGHT] * 9, EIGHT._replace(milli=128_000)])


@pytest.mark.parametrize(
    "other", [Shape(40_000, 1024, 1, 1000), Shape(20_000, 1024, 0, 0)], ids=str
)
def test_a_rare_kind_of_node_is_kept_for_pods_that_fit_on_no_other(other: Shape) -> None:
    """Nine empty nodes of 96 cores count as short of cores with that pod, the tenth does not:
    without the rare pod it would be the best node."""
    usual = Shape(88_000, 1024, 8, 1000)
    wanted = arrived(*[usual] * 9, RARE, times=20)

    assert measure_of(wanted, FLEET).costs(FLEET, other, np.arange(10)).cost.argmin() < 9


def test_a_rare_kind_of_node_is_never_worth_more_than_its_cards() -> None:
    wanted, kinds = arrived(RARE), kinds_of(FLEET)
    terms = terms_of(wanted, kinds, worth_of(wanted.priced, kinds))

    most = TermWeights().fragmentation * float(terms.many.max()) / 8000
    assert 1.0 < most < 1.3, "the worth of all its cards, and how popular the pod is"


def test_nodes_that_differ_by_parts_of_a_core_are_one_kind() -> None:
    several = Pool([EIGHT._replace(milli=95_100 + 10 * at) for at in range(80)])
    one = Pool([EIGHT._replace(milli=95_000)] * 80)
    wanted = arrived(WHOLE)

    tables = [
        terms_of(wanted, kinds_of(pool), worth_of(wanted.priced, kinds_of(pool)))
        for pool in (several, one)
    ]

    assert np.array_equal(tables[0].many, tables[1].many)
