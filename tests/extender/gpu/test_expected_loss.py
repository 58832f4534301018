"""`gpu_packing=fragmentation`: scores and cards by what a placement leaves for later pods."""

import random
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bus_kit import NOON, ask, hardware
from gpu_kit import CARDS, MB, PODS, a_card, a_claim, wanting
from joulie_bus.events import Duty, PodAsk, PrioritizeDecided, named_values
from joulie_extender.catalogue.declaration import declaration, weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import (
    again,
    answered_scores,
    prioritize_decision,
    rows_by_name,
)
from joulie_extender.decide.explained import explained
from joulie_extender.gpu.card_choice import choose_cards
from joulie_extender.gpu.demand import NodeKind, PoolKinds
from joulie_extender.gpu.expected_loss import (
    UNUSABLE,
    card_losses,
    expected_loss,
    points_of,
    prepare,
)
from joulie_extender.gpu.fit import DRIVER_MB, GpuWeights
from joulie_extender.gpu.fragmentation import MOST_CORES
from joulie_extender.gpu.free_cards import kinds_of, rests_of
from joulie_extender.gpu.models import Aliases
from joulie_extender.gpu.unusable import free_gpus
from joulie_extender.protocol.candidates import candidates_of
from joulie_projections.pods.load import Load
from joulie_projections.state.cards import CardState
from joulie_projections.state.gpu_arrivals import PRIOR, GpuArrivals, GpuDemand, GpuShape, with_pod
from joulie_projections.state.state import NodeState
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import TwinColumns

LEARNED = Weights(gpu=GpuWeights(packing="fragmentation"))
NAMES = ["n0", "n1", "n2"]


def a_node(ordinal: int, *, taken: float = 0) -> NodeState:
    """96 cores, of which pods take some."""
    return NodeState(
        ordinal=ordinal,
        at=NOON,
        present=True,
        hardware=hardware(f"n{ordinal}", cores=96, gpus=8),
        load=Load(cpu_milli=round(taken * 1000), warm_cpu_micro=round(taken * 1_000_000)),
    )


def columns_of(
    cards: Mapping[str, CardState],
    demand: GpuDemand | None = None,
    nodes: Mapping[str, NodeState] | None = None,
) -> TwinColumns:
    there = nodes or {name: a_node(at) for at, name in enumerate(NAMES)}
    twin_columns = TwinColumns.of(there, 0)
    twin_columns = twin_columns.with_gpu_demand(demand or twin_columns.gpu_demand)
    return twin_columns.with_cards(Cards.of(cards, twin_columns.rows))


def asked_before(*shapes: GpuShape, model: str = "") -> GpuDemand:
    arrivals = PRIOR
    for _ in range(200):
        for shape in shapes:
            arrivals = with_pod(arrivals, shape, model)
    return GpuDemand(arrivals, arrivals.sizes)


def in_use(node: str, mb: int) -> CardState:
    return a_card(node, claims={"z": a_claim(mb, node, confirmed=True)})


def decided(pod: PodAsk, twin_columns: TwinColumns, duty: Duty = "gpu") -> PrioritizeDecided:
    context = DecisionContext(twin_columns, 1, 0, NOON)
    candidates = candidates_of(NAMES, rows_by_name(twin_columns, NAMES))
    return prioritize_decision(pod, candidates, NAMES, context, LEARNED, duty)


def scores(pod: PodAsk, twin_columns: TwinColumns, duty: Duty = "gpu") -> list[int]:
    found: list[int] = answered_scores(decided(pod, twin_columns, duty)).tolist()
    return found


# --- what it prefers ----------------------------------------------------------------------------


def test_a_share_goes_to_the_card_whose_rest_is_of_least_use() -> None:
    cards = {
        "whole": a_card("n0"),
        "little": in_use("n0", MB * 81 // 100),
        "half": in_use("n0", MB // 2),
    }
    demand = asked_before(GpuShape(4000, 1, 810), GpuShape(4000, 1, 190), GpuShape(4000, 1, 500))
    small = wanting(cards=0, share_milli=190)

    found = choose_cards(small, "n0", columns_of(cards, demand), LEARNED.gpu)

    assert found is not None
    assert [taken.card for taken in found.cards] == ["little"]


def test_a_card_with_a_little_rest_is_kept_for_pods_that_ask_for_that_rest() -> None:
    cards = {"a": in_use("n0", MB * 6 // 10), "b": in_use("n1", MB * 7 // 10)}
    small, medium = GpuShape(4000, 1, 300), GpuShape(4000, 1, 400)
    pod = wanting(cards=0, share_milli=300)

    assert np.argmax(scores(pod, columns_of(cards, asked_before(small, medium)))) == 1


def test_a_pod_with_many_cores_goes_where_no_cards_need_them() -> None:
    cards = {f"{name}{at}": a_card(name) for name in NAMES for at in range(8)}
    cards |= {f"n1{at}": in_use("n1", MB) for at in range(7)}
    heavy = replace(wanting(vram_mb=1), cpu_milli=60_000)

    assert np.argmax(scores(heavy, columns_of(cards))) == 1


def test_a_model_that_others_wait_for_is_left_to_them() -> None:
    cards = {"a": a_card("n0", model="H100"), "b": a_card("n1", model="T4")}
    demand = asked_before(GpuShape(8000, 1, 1000), model="H100")

    assert np.argmax(scores(wanting(vram_mb=1), columns_of(cards, demand))) == 1
    assert np.argmax(scores(wanting(model="H100"), columns_of(cards, demand))) == 0


def test_a_request_for_memory_is_packed_by_the_part_of_the_card_that_it_takes() -> None:
    cards = {"a": a_card("n0", mb=80_000), "b": a_card("n1", mb=20_000)}
    wants = wanting(cards=0, vram_mb=20_000)

    assert scores(wants, columns_of(cards, asked_before(GpuShape(1000, 1, 0, 20_000))))[0] > 0
    assert scores(wanting(cards=0, vram_mb=70_000), columns_of(cards))[1] == 0


def test_a_node_whose_cores_or_cards_are_unknown_never_scores_best() -> None:
    bare = NodeState(ordinal=1, at=NOON, present=True)
    nodes = {"n0": a_node(0), "n1": bare, "n2": a_node(2)}
    cards = {"a": in_use("n0", MB // 2), "b": a_card("n1")}

    for pod in (wanting(cards=0, share_milli=500), ask(gpus=1), ask()):
        found = scores(pod, columns_of(cards, nodes=nodes))
        assert found[1] == found[2] == 0, pod


def test_a_whole_card_is_not_whole_while_a_pod_is_on_it_and_a_sick_card_is_not_free() -> None:
    cards = {"a": in_use("n0", 1), "b": a_card("n1", healthy=False), "c": a_card("n2")}
    rows = np.array([1, 2, 3])

    found = expected_loss(wanting(vram_mb=1), columns_of(cards), rows, LEARNED.gpu)

    assert found.tolist() == [UNUSABLE, UNUSABLE, 0.0]


# --- the scale ----------------------------------------------------------------------------------


def test_the_scale_keeps_small_differences_and_ends_at_nothing() -> None:
    losses = np.array([0.0, 0.0001, 0.001, 0.003, 0.5, 5.0, UNUSABLE])
    points = points_of(losses)

    assert points[0] == 10
    assert points[2] == pytest.approx(9)
    assert points[3] == pytest.approx(8)
    assert points[-2:].tolist() == [0, 0]
    assert list(points) == sorted(points, reverse=True)
    assert points[1] < 10


def test_the_answer_under_gpu_has_a_hundred_steps_and_a_pod_without_cards_gets_one_too() -> None:
    cards = {"a": a_card("n0"), "b": in_use("n1", MB // 2), "c": a_card("n2")}

    assert max(scores(wanting(cards=0, share_milli=300), columns_of(cards))) == 100
    assert max(scores(ask(), columns_of(cards))) == 100


def test_an_answer_under_gpu_has_no_figures_of_the_cluster() -> None:
    found = decided(ask(), columns_of({"a": a_card("n0")}))

    assert (found.cluster_trend_w_per_min, found.perf_pressure) == (None, None)


def test_a_pod_without_cards_is_scored_as_before_where_energy_counts() -> None:
    twin_columns = columns_of({"a": a_card("n0")})
    plain = prioritize_decision(
        ask(),
        candidates_of(NAMES, rows_by_name(twin_columns, NAMES)),
        NAMES,
        DecisionContext(twin_columns, 1, 0, NOON),
        Weights(),
    )

    assert decided(ask(), twin_columns, "energy").terms_digest == plain.terms_digest


# --- replay -------------------------------------------------------------------------------------


@given(cards=CARDS, pod=PODS, draw=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_a_replay_computes_the_same_whatever_the_order_in_which_cards_were_seen(
    cards: dict[str, CardState], pod: PodAsk, draw: random.Random
) -> None:
    weights = weights_of(declaration(LEARNED))
    assert weights is not None
    assert weights == LEARNED
    shuffled = dict(draw.sample(list(cards.items()), len(cards)))
    fresh = columns_of(cards)
    followed = columns_of({name: a_card("n1", model="old") for name in shuffled})
    followed = followed.with_cards(followed.cards.following(shuffled, followed.rows))

    for duty in ("energy", "gpu"):
        found = decided(pod, fresh, duty)
        assert again(found, followed, weights) == found
        chosen = [choose_cards(pod, "n0", each, LEARNED.gpu) for each in (fresh, followed)]
        assert chosen[0] == chosen[1]


def test_columns_that_follow_claims_score_as_columns_built_anew() -> None:
    cards = {f"{name}{at}": a_card(name) for name in NAMES for at in range(4)}
    followed, pod = columns_of(cards), wanting(cards=0, share_milli=300)
    scores(pod, followed)  # fills what is kept while only the use of cards changes
    for at in range(4):
        changed = {f"n{at % 3}{at}": in_use(f"n{at % 3}", MB * (at + 1) // 5)}
        cards |= changed
        followed = followed.with_cards(followed.cards.following(changed, followed.rows))
        assert decided(pod, followed) == decided(pod, columns_of(cards))


def test_scores_follow_cores_that_pods_without_cards_take() -> None:
    cards = {f"{name}{at}": a_card(name) for name in NAMES for at in range(4)}
    before, pod = columns_of(cards), wanting(cards=0, share_milli=300)
    scores(pod, before)  # fills what is kept while the cards are the same
    nodes = {name: a_node(at, taken=95 if name == "n0" else 0) for at, name in enumerate(NAMES)}
    followed = before.updated([("n0", nodes["n0"])], 0)

    assert decided(pod, followed) == decided(pod, columns_of(cards, nodes=nodes))
    assert decided(pod, followed) != decided(pod, before)


HEAVY = GpuShape(14_000, 1, 1000)  # of 12 cores for each card


def places_of(columns: TwinColumns, pod: PodAsk) -> list[float]:
    rows = np.array([columns.rows[name] for name in NAMES])
    found: list[float] = expected_loss(pod, columns, rows, LEARNED.gpu).tolist()
    return found


def test_where_cores_run_out_first_a_pod_with_few_goes_beside_pods_with_many() -> None:
    """`n0` has 13 cores for each free card, `n1` 40, and `n2` no free card."""
    cards = {f"{name}/{at}": a_card(name) for name in NAMES for at in range(8)}
    cards |= {f"n0/{at}": in_use("n0", MB) for at in range(4)}
    cards |= {f"n1/{at}": in_use("n1", MB) for at in range(6)}
    cards |= {f"n2/{at}": in_use("n2", MB) for at in range(8)}
    nodes = {"n0": a_node(0, taken=44), "n1": a_node(1, taken=16), "n2": a_node(2)}
    columns = columns_of(cards, asked_before(HEAVY), nodes)
    small = replace(wanting(vram_mb=1), cpu_milli=1000)

    losses = places_of(columns, small)

    assert losses[0] == 0.0
    assert losses[1] > 0.0


@pytest.mark.parametrize(
    ("cards", "need"),
    [
        ({"n0": 8}, 12.0),
        ({"n0": 8, "n1": 4, "n2": 4}, 24.0),  # as many cards with each: the most cores
        ({"n0": 8, "n1": 2}, 12.0),
    ],
    ids=str,
)
def test_the_usual_cores_of_a_card_are_those_of_most_cards(
    cards: dict[str, int], need: float
) -> None:
    there = {f"{name}/{at}": a_card(name) for name, count in cards.items() for at in range(count)}

    assert kinds_of(columns_of(there), ()).usual_need == need


@pytest.mark.parametrize(
    ("cores", "need"),
    [
        ([96.0, 95.9, 104.0], 11.99375),
        ([95.9, 96.0, 80.0], 11.99375),
        ([64.0, 95.9, 128.0], 16.0),
        ([96.0, 0.0, 0.0], 12.0),
    ],
    ids=str,
)
def test_nodes_with_hardly_more_or_fewer_cores_are_of_one_kind(
    cores: list[float], need: float
) -> None:
    nodes = {
        name: NodeState(
            ordinal=at, at=NOON, present=True, cpu_milli=round(cores[at] * 1000), gpus=8
        )
        for at, name in enumerate(NAMES)
    }
    cards = {f"{name}/{at}": a_card(name) for name in NAMES for at in range(8)}

    assert kinds_of(columns_of(cards, nodes=nodes), ()).usual_need == pytest.approx(need)


def test_nodes_with_unknown_cores_tell_nothing_of_the_usual_ones() -> None:
    nodes = {"n0": NodeState(ordinal=0, at=NOON, present=True), "n1": a_node(1), "n2": a_node(2)}
    cards = {f"n0/{at}": a_card("n0") for at in range(8)} | {"b": a_card("n1")}

    assert kinds_of(columns_of(cards, nodes=nodes), ()).usual_need == 96.0
    assert kinds_of(columns_of({}), ()).usual_need == 0.0


USUAL = GpuShape(10_000, 1, 1000)  # of 12 cores for each card
SMALL = replace(wanting(vram_mb=1), cpu_milli=1000)


def columns_with(beside: float) -> TwinColumns:
    """`n0` has 9 cores for each free card, `n1` 26, and `n2` no free card."""
    cards = {f"{name}/{at}": a_card(name) for name in NAMES for at in range(8)}
    cards |= {f"n0/{at}": in_use("n0", MB) for at in range(4)}
    cards |= {f"n1/{at}": in_use("n1", MB) for at in range(7)}
    cards |= {f"n2/{at}": in_use("n2", MB) for at in range(8)}
    nodes = {"n0": a_node(0, taken=60), "n1": a_node(1, taken=70), "n2": a_node(2, taken=beside)}
    return columns_of(cards, asked_before(USUAL), nodes)


def test_a_pod_with_few_cores_goes_where_few_are_left_if_pods_without_gpus_take_them() -> None:
    few, many = (places_of(columns_with(each), SMALL) for each in (80, 96))

    assert many[1] - many[0] > few[1] - few[0] + 0.5


def test_scores_follow_whether_cores_run_out() -> None:
    columns = columns_with(80)
    for beside in (96, 80, 96):
        columns = columns.updated([("n2", a_node(2, taken=beside))], 0)
        assert decided(SMALL, columns) == decided(SMALL, columns_with(beside))

    assert decided(SMALL, columns) != decided(SMALL, columns_with(80))


def test_scores_follow_a_renewed_demand() -> None:
    cards = {"a": in_use("n0", MB * 6 // 10), "b": in_use("n1", MB * 7 // 10)}
    twin_columns, pod = columns_of(cards), wanting(cards=0, share_milli=300)
    before = decided(pod, twin_columns)

    renewed = twin_columns.with_gpu_demand(asked_before(GpuShape(4000, 1, 400)))

    assert renewed.cards is twin_columns.cards
    assert decided(pod, renewed).terms_digest != before.terms_digest
    assert decided(pod, twin_columns) == before


def test_what_a_pod_has_claimed_itself_counts_as_free() -> None:
    own = {"a": a_card("n0", claims={"p": a_claim(MB)}), "b": a_card("n1")}
    free = {"a": a_card("n0"), "b": a_card("n1")}
    pod = wanting("p", vram_mb=1)

    assert scores(pod, columns_of(own)) == scores(pod, columns_of(free))


# --- explained ----------------------------------------------------------------------------------


def test_an_explanation_says_what_later_pods_lose() -> None:
    cards = {"a": in_use("n0", MB * 6 // 10), "b": in_use("n1", MB * 7 // 10), "c": a_card("n2")}
    demand = asked_before(GpuShape(4000, 1, 300), GpuShape(4000, 1, 400))
    found = decided(wanting(cards=0, share_milli=300), columns_of(cards, demand))
    best, *others = found.top

    assert named_values(best)["lost_gpus"] == 0
    assert all(named_values(each)["lost_gpus"] > 0 for each in others)
    assert explained(found).text.endswith("; there GPU pods that arrive later lose least")
    worse = explained(replace(found, top=others)).text
    assert "; there GPU pods that arrive later lose 0." in worse
    assert worse.endswith("GPUs more than on another node")


def test_a_card_of_unknown_memory_is_no_place_for_a_pod() -> None:
    cards = {"a": a_card("n0", mb=0), "b": a_card("n1")}

    columns = columns_of(cards)
    rows = np.array([columns.rows[name] for name in NAMES])

    found = expected_loss(wanting(), columns, rows, LEARNED.gpu)

    assert found.tolist() == [1000.0, 0.0, 1000.0], "the loss that entries of the log have"


def test_whole_cards_are_of_use_where_a_pod_of_several_fits() -> None:
    arrivals = with_pod(GpuArrivals(), GpuShape(4000, 2, 1000), "")
    cards = {"a": a_card("n0"), "b": a_card("n0"), "c": a_card("n1")}

    found = free_gpus(columns_of(cards, GpuDemand(arrivals, arrivals.sizes)), ())

    assert list(found.values()) == [(3.0, 1.0)], "the one on n1 is alone"


def test_a_cluster_without_cards_has_none_that_are_free() -> None:
    assert free_gpus(columns_of({}), ()) == {}
    assert PoolKinds((), (), (), ()).common_mb == 0


@pytest.mark.parametrize(("used_mb", "milli"), [(DRIVER_MB, 1000), (DRIVER_MB + 1, 974)])
def test_an_unused_card_is_whole_if_it_lacks_no_more_than_a_driver_takes(
    used_mb: int, milli: int
) -> None:
    cards = columns_of({"a": a_card("n0", mb=40 * 1024, used_mb=used_mb)}).cards

    assert rests_of(cards).tolist() == [[milli]]


def test_whole_cards_are_of_use_for_pods_of_several_however_few_ask_for_them() -> None:
    arrivals = with_pod(GpuArrivals(), GpuShape(4000, 2, 1000), "")
    for _ in range(300):  # which need more cores than the node has
        arrivals = with_pod(arrivals, GpuShape(127_000, 1, 1000), "")
    cards = {"a": a_card("n0"), "b": a_card("n0")}

    found = free_gpus(columns_of(cards, GpuDemand(arrivals, arrivals.sizes)), ())

    assert list(found.values()) == [(2.0, 0.0)]


def test_cores_beyond_the_most_that_count_make_no_difference() -> None:
    there = {"n0": a_node(0), "n1": a_node(1), "n2": a_node(2)}
    large = replace(a_node(1), hardware=hardware("n1", cores=2 * MOST_CORES, gpus=8))
    cards = {f"{name}-{at}": a_card(name) for name in NAMES for at in range(8)}
    columns = columns_of(cards, nodes={**there, "n1": large})

    found = expected_loss(
        wanting(), columns, np.array([columns.rows[each] for each in NAMES]), LEARNED.gpu
    )

    assert np.isfinite(found).all()
    assert (found < UNUSABLE).all()


def test_cards_of_a_node_that_is_gone_are_not_free() -> None:
    there = {"n0": a_node(0), "n1": replace(a_node(1), present=False), "n2": a_node(2)}
    columns = columns_of({"a": a_card("n0"), "b": a_card("n1")}, nodes=there)

    assert list(free_gpus(columns, ()).values()) == [(1.0, 0.0)]


def losses_on(twin_columns: TwinColumns, pod: PodAsk, *, aliases: Aliases = ()) -> list[float]:
    """The losses on all nodes."""
    rows = np.array([twin_columns.rows[name] for name in NAMES])
    found: list[float] = expected_loss(
        pod, twin_columns, rows, GpuWeights(aliases=aliases)
    ).tolist()
    return found


def learned(counts: Mapping[GpuShape, int]) -> GpuDemand:
    """A demand of these shapes, and of nothing else."""
    sizes = {f"{shape.share}/{shape.mb}": count for shape, count in counts.items()}
    cards = sum(shape.cards * shape.share * count for shape, count in counts.items())
    shapes = {shape.key: count for shape, count in counts.items()}
    return GpuDemand(GpuArrivals(1, shapes, {"": cards}, sizes, 0), sizes)


ONE_WHOLE = GpuShape(1000, 1, 1000)


# --- what it counts -----------------------------------------------------------------------------


def test_a_node_of_one_core_is_a_place_for_a_pod() -> None:
    one = replace(a_node(1), hardware=hardware("n1", cores=1, gpus=8))
    columns = columns_of({"a": a_card("n1")}, nodes={"n0": a_node(0), "n1": one, "n2": a_node(2)})

    assert losses_on(columns, replace(wanting(), cpu_milli=1000))[1] == 0.0


def test_a_pod_that_asks_for_more_cores_than_are_free_has_no_place_there() -> None:
    nodes = {"n0": a_node(0), "n1": a_node(1, taken=93), "n2": a_node(2)}
    columns = columns_of({"a": a_card("n0"), "b": a_card("n1")}, nodes=nodes)

    assert losses_on(columns, replace(wanting(), cpu_milli=4000))[1] == UNUSABLE
    assert losses_on(columns, replace(wanting(), cpu_milli=3000))[1] < UNUSABLE


def test_a_pod_without_cards_costs_no_card_while_its_cores_are_to_spare() -> None:
    """Neither of two whole cards, nor of one and a part."""
    nodes = {name: a_node(at, taken=10) for at, name in enumerate(NAMES)}
    cards = {"a": a_card("n0"), "b": a_card("n0"), "c": a_card("n1"), "d": in_use("n1", MB // 2)}
    columns = columns_of(cards, learned({GpuShape(1000, 2, 1000): 1}), nodes)

    assert losses_on(columns, ask(cores=1))[:2] == [0.0, 0.0]


def test_a_card_is_chosen_by_what_later_pods_lose_before_the_memory_that_is_left() -> None:
    """Pods of 60 of 100 parts could still use what is left of the emptier card."""
    cards = {"a": in_use("n0", MB // 10), "b": in_use("n0", MB * 3 // 10)}
    columns = columns_of(cards, learned({GpuShape(1000, 1, 600): 1}))
    share = wanting(cards=0, share_milli=200)

    by_loss, by_rest = (
        choose_cards(share, "n0", columns, GpuWeights(packing=packing))
        for packing in ("fragmentation", "fit")
    )

    assert by_loss is not None
    assert by_rest is not None
    assert [by_loss.cards[0].card, by_rest.cards[0].card] == ["a", "b"]


def test_a_card_of_a_second_model_of_a_node_costs_nothing() -> None:
    """As the first one, of which no pod that was seen could use what is left."""
    cards = {"a": in_use("n0", MB // 2), "b": replace(in_use("n0", MB * 6 // 10), model="T4")}
    found = choose_cards(
        wanting(cards=0, share_milli=200),
        "n0",
        columns_of(cards, learned({ONE_WHOLE: 1})),
        LEARNED.gpu,
    )

    assert found is not None
    assert [taken.card for taken in found.cards] == ["b"]


def test_a_node_without_cards_has_no_losses_by_card() -> None:
    columns = columns_of({})

    assert card_losses(wanting(), columns, columns.rows["n0"], LEARNED.gpu) == {}
    assert choose_cards(wanting(), "n0", columns, LEARNED.gpu) is None


def test_tables_of_a_cluster_without_cards_count_a_request_for_memory_as_no_part() -> None:
    arrivals = with_pod(GpuArrivals(), GpuShape(1000, 1, 0, 8000), "")
    columns = columns_of({}, GpuDemand(arrivals, arrivals.sizes))

    prepare(columns, LEARNED.gpu)

    assert losses_on(columns, wanting()) == [UNUSABLE] * 3


# --- what is kept -------------------------------------------------------------------------------


def test_what_a_pod_has_claimed_itself_stays_taken_for_other_pods() -> None:
    cards = {"a": a_card("n0", claims={"p": a_claim(MB)}), "b": a_card("n1")}
    columns, other = columns_of(cards), wanting("q", vram_mb=1)
    before = losses_on(columns, other)

    losses_on(columns, wanting("p", vram_mb=1))

    assert losses_on(columns, other) == before
    assert before[0] == UNUSABLE


def test_losses_follow_the_only_card_of_a_node() -> None:
    cards = {"a": a_card("n0"), "b": a_card("n1")}
    followed, pod = columns_of(cards), wanting(vram_mb=1)
    losses_on(followed, pod)  # fills what is kept while only the use of cards changes
    taken = {"a": in_use("n0", MB)}
    followed = followed.with_cards(followed.cards.following(taken, followed.rows))

    assert losses_on(followed, pod) == [UNUSABLE, 0.0, UNUSABLE]


def test_losses_follow_the_cores_that_a_node_gains() -> None:
    cards = {f"{name}{at}": a_card(name) for name in NAMES for at in range(2)}
    demand = learned({GpuShape(48_000, 2, 1000): 1, GpuShape(1000, 1, 500): 1})
    small = {
        name: replace(a_node(at), hardware=hardware(name, cores=32, gpus=2))
        for at, name in enumerate(NAMES)
    }
    grown = {**small, "n1": replace(a_node(1), hardware=hardware("n1", cores=64, gpus=2))}
    followed, pod = columns_of(cards, demand, small), wanting(cards=0, share_milli=500)
    losses_on(followed, pod)
    followed = followed.updated([("n1", grown["n1"])], 0)

    assert losses_on(followed, pod) == losses_on(columns_of(cards, demand, grown), pod)


def test_losses_follow_the_other_names_of_a_model() -> None:
    columns, pod = columns_of({"a": a_card("n0", model="NVIDIA X1")}), wanting(model="Fast")

    assert losses_on(columns, pod)[0] == UNUSABLE
    assert losses_on(columns, pod, aliases=(("Fast", "NVIDIA X1"),))[0] == 0.0


def test_the_kinds_of_nodes_are_kept_while_cards_and_cores_stay() -> None:
    columns = columns_of({"a": a_card("n0"), "b": a_card("n0"), "c": a_card("n1")})

    found = kinds_of(columns, ())

    assert found.nodes == (NodeKind(0, 96_000, 1), NodeKind(0, 96_000, 2))
    assert kinds_of(columns, ()) is found


# --- free cards ---------------------------------------------------------------------------------


def test_the_rests_of_cards_have_a_place_for_each_card_of_the_largest_node() -> None:
    cards = {"a": a_card("n0"), "b": a_card("n0"), "c": a_card("n1"), "d": in_use("n1", MB // 2)}

    assert rests_of(columns_of(cards).cards).tolist() == [[1000, 1000], [1000, 500]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (a_card("n0"), in_use("n0", MB // 2)),
        (in_use("n0", MB // 4), in_use("n0", MB // 2)),
        (a_card("n0"), in_use("n0", 0)),
        (in_use("n0", 0), a_card("n0")),
    ],
    ids=["first pod", "more memory", "a pod without memory", "the pod ends"],
)
def test_the_rests_of_cards_follow_their_use(before: CardState, after: CardState) -> None:
    columns = columns_of({"a": before, "b": a_card("n1")})
    rests_of(columns.cards)

    found = rests_of(columns.cards.following({"a": after}, columns.rows)).tolist()

    assert found == rests_of(columns_of({"a": after, "b": a_card("n1")}).cards).tolist()
    assert found != rests_of(columns.cards).tolist()


@pytest.mark.parametrize("mb", [1, MB])
def test_a_card_in_use_is_no_whole_one_even_if_all_of_its_memory_is_free(mb: int) -> None:
    card = a_card("n0", mb=mb, claims={"z": a_claim(0, "n0", confirmed=True)})

    assert rests_of(columns_of({"a": card}).cards).tolist() == [[999]]


def unusable(demand: GpuDemand, node: NodeState, **cards: CardState) -> list[tuple[float, float]]:
    there = {"n0": node, "n1": a_node(1), "n2": a_node(2)}
    return [
        (found.free, found.unusable)
        for found in free_gpus(columns_of(cards, demand, there), ()).values()
    ]


@pytest.mark.parametrize(("taken", "lost"), [(92, 0.0), (92.5, 1.0), (96, 1.0), (97, 1.0)], ids=str)
def test_a_card_is_unusable_beside_fewer_cores_than_any_pod_asks_for(
    taken: float, lost: float
) -> None:
    """Of 96 cores, also if pods request more than there are."""
    demand = learned({GpuShape(4000, 1, 1000): 1})

    assert unusable(demand, a_node(0, taken=taken), a=a_card()) == [(1.0, lost)]


@pytest.mark.parametrize(("taken", "lost"), [(95, 0.0), (95.5, 1.0)], ids=str)
def test_a_card_beside_less_than_a_core_is_unusable(taken: float, lost: float) -> None:
    assert unusable(learned({ONE_WHOLE: 1}), a_node(0, taken=taken), a=a_card()) == [(1.0, lost)]


@pytest.mark.parametrize("cards", [1, 2])
def test_one_pod_in_many_thousands_is_a_use_of_whole_cards(cards: int) -> None:
    never = GpuShape(127_000, 1, 1000)  # needs more cores than the node has
    demand = learned({GpuShape(4000, cards, 1000): 1, never: 10_000})
    there = {f"g{at}": a_card() for at in range(cards)}

    assert unusable(demand, a_node(0), **there) == [(float(cards), 0.0)]
