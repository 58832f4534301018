"""Scores by energy with `gpu_packing=fragmentation`: the loss of GPUs counts in watts."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from msgspec.structs import replace

from bus_kit import NOON, ask, hardware
from gpu_kit import MB, a_card, a_claim, wanting
from joulie_bus.events import PodAsk, named_values
from joulie_extender.catalogue.declaration import declaration, weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import again, decide_prioritize
from joulie_extender.decide.scoring import Scores, score
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.terms.energy import LOST_GPU_W
from joulie_projections.pods.load import Load
from joulie_projections.state.cards import CardState
from joulie_projections.state.gpu_arrivals import PRIOR, GpuDemand, GpuShape, with_pod
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.card_columns import Cards
from joulie_projections.twin.columns import TwinColumns

SAVINGS = Weights(
    scoring="energy",
    gpu=GpuWeights(packing="fragmentation"),
)
POD = wanting(vram_mb=1)


def a_node(at: int, gpus: int = 4) -> NodeState:
    return NodeState(
        ordinal=at,
        at=NOON,
        present=True,
        hardware=hardware(f"n{at}", cores=96, gpus=gpus),
        samples=(Sample(NOON, 300_000),),
    )


def columns_of(cards: Mapping[str, CardState], *nodes: NodeState, model: str = "") -> TwinColumns:
    """`model` is what pods named before."""
    arrivals = PRIOR
    for _ in range(200):
        arrivals = with_pod(arrivals, GpuShape(8000, 1, 1000), model)
    there = nodes or (a_node(0), a_node(1))
    found = TwinColumns.of({f"n{at}": node for at, node in enumerate(there)}, 0)
    found = found.with_gpu_demand(GpuDemand(arrivals, arrivals.sizes))
    return found.with_cards(Cards.of(cards, found.rows))


def free(node: str, count: int, model: str = "H100") -> dict[str, CardState]:
    return {f"{node}-{at}": a_card(node, model=model) for at in range(count)}


def taken(node: str, count: int) -> dict[str, CardState]:
    claims = {"z": a_claim(MB, node, confirmed=True)}
    return {f"{node}-used{at}": a_card(node, model="H100", claims=claims) for at in range(count)}


def scored(pod: PodAsk, columns: TwinColumns, weights: Weights = SAVINGS) -> Scores:
    rows = np.array(sorted(columns.rows.values()))
    return score(pod, columns, rows, NOON, 0, weights)


def lost_w(pod: PodAsk, columns: TwinColumns) -> list[float]:
    found: list[float] = scored(pod, columns)["lost_gpus_w"].tolist()
    return found


def test_a_lost_gpu_costs_more_the_more_gpus_are_in_use() -> None:
    """A pod with most cores leaves three free cards of the first node without any."""
    heavy = replace(POD, cpu_milli=90_000)
    nodes = [a_node(0), a_node(1), a_node(2)]
    cards = {**free("n0", 4), **free("n1", 1), **taken("n1", 3)}

    early = lost_w(heavy, columns_of(cards | free("n2", 4), *nodes))
    late = lost_w(heavy, columns_of(cards | taken("n2", 4), *nodes))

    assert early[1] == late[1] == 0.0
    assert late[0] > early[0] > 0


def test_a_card_of_a_model_that_pods_name_has_its_full_price_while_no_card_is_in_use() -> None:
    cards = {**free("n0", 4, "H100"), **free("n1", 4, "T4")}

    named = lost_w(POD, columns_of(cards, model="H100"))

    assert named[0] > named[1]
    assert named[0] - named[1] > LOST_GPU_W / 2
    assert lost_w(wanting(model="H100"), columns_of(cards, model="H100"))[0] == 0.0
    assert lost_w(POD, columns_of(cards)) == [0.0, 0.0]


def test_a_node_whose_cards_are_unknown_never_scores_best() -> None:
    columns = columns_of(free("n1", 4), a_node(0), a_node(1))

    found = scored(POD, columns)

    assert int(found.answer.argmax()) == 1
    assert found["lost_gpus_w"][0] >= LOST_GPU_W


def test_a_pod_without_cards_is_kept_off_the_cards_while_a_candidate_has_none() -> None:
    cards = {**free("n0", 4), **free("n1", 1), **taken("n1", 3)}
    mixed = columns_of(cards, a_node(0), a_node(1), a_node(2, gpus=0))
    pod = ask("p", cores=4)

    assert int(scored(pod, mixed).answer.argmax()) == 2
    assert scored(pod, mixed)["lost_gpus_w"][2] == 0.0
    assert not scored(pod, columns_of(cards))["reserve_w"].any()


def test_a_pod_without_cards_goes_last_to_a_node_whose_cards_are_unknown() -> None:
    columns = columns_of(free("n1", 4), a_node(0), a_node(1))

    found = scored(ask("p", cores=4), columns)

    assert int(found.answer.argmax()) == 1
    assert found["lost_gpus_w"][0] == 4 * LOST_GPU_W


@pytest.mark.parametrize("pod", [POD, ask("p", cores=4)])
def test_where_no_card_is_known_scores_are_those_without_the_term(pod: PodAsk) -> None:
    columns = columns_of({})
    without = dataclasses.replace(SAVINGS, gpu=GpuWeights())

    assert "lost_gpus_w" not in scored(pod, columns).more
    assert scored(pod, columns).answer.tolist() == scored(pod, columns, without).answer.tolist()


def test_without_cards_among_the_candidates_there_is_no_loss() -> None:
    columns = columns_of({}, a_node(0, gpus=0), a_node(1, gpus=0))

    assert "lost_gpus_w" not in scored(ask("p", cores=4), columns).more


def test_decisions_with_another_packing_are_without_the_term() -> None:
    columns = columns_of({**free("n0", 4), **free("n1", 1), **taken("n1", 3)})
    before = dataclasses.replace(SAVINGS, gpu=GpuWeights())
    context = DecisionContext(columns, 1, 0, NOON)

    decision = decide_prioritize(POD, ["n0", "n1"], context, before)
    declared = weights_of(declaration(before))

    assert declared is not None
    assert again(decision, columns, declared) == decision
    assert "lost_gpus_w" not in named_values(decision.top[0])
    assert decide_prioritize(POD, ["n0", "n1"], context, SAVINGS).top != decision.top


# --- cards that pods share by time --------------------------------------------------------------


def in_units(at: int, taken: int = 0) -> NodeState:
    """Four cards as 16 units, of which pods have taken some."""
    load = Load(gpu_standard_milli=1000 * taken)
    return replace(a_node(at), gpus=4, gpu_units=16, load=load)


def shared(node: str, pods: int) -> dict[str, CardState]:
    """Four cards, each with so many pods that take a quarter of it."""
    claims = {f"z{each}": a_claim(MB // 4, node, confirmed=True) for each in range(pods)}
    return {f"{node}-{at}": a_card(node, model="L4", claims=claims) for at in range(4)}


PLAIN = replace(ask("p", cores=4), gpu_milli=1000, gpu_cards=1)


@pytest.mark.parametrize("pods", [1, 2, 3])
def test_a_unit_on_a_card_that_pods_share_costs_less_than_a_card_that_is_free(pods: int) -> None:
    columns = columns_of(shared("n0", pods) | free("n1", 4), in_units(0, 4 * pods), a_node(1))

    found = scored(PLAIN, columns)

    assert int(found.answer.argmax()) == 0
    assert found["lost_gpus_w"][0] == 0.0


def test_a_unit_is_placed_where_other_pods_have_taken_the_memory_of_all_cards() -> None:
    """kube-scheduler counts units, not memory."""
    cards = {f"n0-{at}": a_card("n0", model="L4", used_mb=MB, owner="z") for at in range(4)}
    columns = columns_of(cards | free("n1", 4), in_units(0, 4), a_node(1))

    assert lost_w(PLAIN, columns)[0] == 0.0
    assert int(scored(PLAIN, columns).answer.argmax()) == 0


def test_units_of_several_cards_take_their_parts_together() -> None:
    columns = columns_of(shared("n0", 0) | free("n1", 8), in_units(0), a_node(1, gpus=8))
    two = replace(PLAIN, gpu_milli=2000, gpu_cards=2)

    named = lost_w(two, columns.with_gpu_demand(columns_of({}, model="H100").gpu_demand))

    assert named[1] - named[0] > LOST_GPU_W  # of the two cards of the model that pods name


def test_a_pod_that_asks_for_memory_does_not_share_a_card_by_time() -> None:
    columns = columns_of(shared("n0", 1) | free("n1", 4), in_units(0, 4), a_node(1))

    assert int(scored(POD, columns).answer.argmax()) == 1


def test_units_that_are_reported_as_cards_of_their_own_are_cards() -> None:
    """Slices: each has memory of its own, and a pod takes a whole one."""
    slices = {f"n0-{at}": a_card("n0", model="slice") for at in range(16)}
    columns = columns_of(slices | free("n1", 4), in_units(0), a_node(1))

    assert lost_w(PLAIN, columns) == lost_w(POD, columns)


def test_tables_follow_the_units_of_a_node() -> None:
    columns = columns_of(shared("n0", 1) | free("n1", 4), a_node(0), a_node(1))
    assert lost_w(PLAIN, columns)[0] > 0

    followed = columns.updated([("n0", in_units(0, 4))], 0)

    assert lost_w(PLAIN, followed)[0] == 0.0


def test_units_are_spread_so_a_node_with_idle_cards_loses_one() -> None:
    """The device plugin gives out a unit of the card with the fewest pods."""
    begun = {**shared("n0", 1), "n1-0": shared("n1", 1)["n1-0"]}
    idle = {f"n1-{at}": a_card("n1", model="L4") for at in range(1, 4)}
    used = {f"n2-{at}": card for at, card in enumerate(taken("n2", 4).values())}
    used = {name: replace(card, node="n2") for name, card in used.items()}
    nodes = in_units(0, 4), in_units(1, 1), a_node(2)

    found = lost_w(PLAIN, columns_of(begun | idle | used, *nodes))

    assert found[1] > found[0] == 0.0
