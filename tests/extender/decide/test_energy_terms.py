"""Scores by watts, and the cards that are kept for pods that ask for cards."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import reference_scoring
from bus_kit import NOON, SECOND, ask, hardware, producer
from joulie_bus.events import GpuAsk, PodAsk, PrioritizeDecided, codec
from joulie_extender.catalogue.declaration import declaration, weights_of
from joulie_extender.catalogue.terms import points_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import again, decide_prioritize
from joulie_extender.decide.scoring import Scores, score, terms_of
from joulie_extender.terms.preferences import Preference, Preferences
from joulie_projections.pods.load import Load
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.energy_score import FORMULA
from joulie_projections.twin.facility import Hall, Halls
from reference_scoring import Question

AVOID, ALLOW = Weights(), Weights(cpu_pods_on_gpu_nodes="allow")
ENERGY = Weights(scoring="energy")
thorough = settings(deadline=None, max_examples=100)


def node(cores: float = 0.0, cards: float = 0.0, gpus: int = 0, **changes: Any) -> NodeState:
    """A node of 96 cores and 700 W with this many requested cores and cards."""
    load = Load(round(cores * 1000), round(cores * 1e6), round(cards * 1000), 0)
    known: dict[str, Any] = {
        "hardware": hardware("n", cores=96, watts=700, gpus=gpus),
        "samples": (Sample(NOON, 300_000),),
    }
    return NodeState(ordinal=0, at=NOON, load=load, **{**known, **changes})


def scored(pod: PodAsk, weights: Weights, *nodes: NodeState) -> Scores:
    twin_columns, names = columns_of(*nodes)
    rows = [twin_columns.rows[name] for name in names]
    return score(pod, twin_columns, np.array(rows), NOON, 0, weights)


def columns_of(*nodes: NodeState) -> tuple[TwinColumns, list[str]]:
    named = {f"n{at}": replace(each, ordinal=at) for at, each in enumerate(nodes)}
    return TwinColumns.of(named, 0), list(named)


def best(scores: Scores) -> int:
    return int(scores.answer.argmax())


POD = ask("p", cores=4)
CARDS = ask("p", cores=4, gpus=1)


@pytest.mark.parametrize("weights", [AVOID, ENERGY])
def test_a_pod_without_cards_stays_off_free_cards_while_others_have_room(weights: Weights) -> None:
    busy, idle = node(cores=80), node(gpus=8)

    assert best(scored(POD, weights, idle, busy)) == 1


def test_a_pod_without_cards_may_use_free_cards_if_the_setting_allows() -> None:
    found = scored(POD, ALLOW, node(gpus=8), node(cores=80, samples=(Sample(NOON, 650_000),)))

    assert (best(found), found.more.get("cards_kept")) == (0, None)


def test_only_free_cards_are_kept() -> None:
    found = scored(POD, AVOID, node(gpus=8, cards=8), node(gpus=8), node())

    assert found["cards_kept"][0] == found["cards_kept"][2] == 0 < found["cards_kept"][1]


def test_no_card_is_kept_where_all_nodes_have_free_cards() -> None:
    assert "cards_kept" not in scored(POD, AVOID, node(gpus=8), node(gpus=4)).more


def test_no_card_is_kept_from_a_pod_that_asks_for_cards() -> None:
    assert "cards_kept" not in scored(CARDS, AVOID, node(gpus=8), node()).more
    memory = replace(POD, gpu=GpuAsk(vram_mb=1000))
    for pod in (CARDS, memory):
        found = scored(pod, ENERGY, node(gpus=8), node())
        assert found["reserve_w"].tolist() == [0.0, 0.0]


def test_no_watts_are_reserved_for_cards_if_the_setting_allows_other_pods() -> None:
    allowed = dataclasses.replace(ENERGY, cpu_pods_on_gpu_nodes="allow")

    assert scored(POD, allowed, node(gpus=8), node())["reserve_w"].tolist() == [0.0, 0.0]


def test_the_only_card_of_a_node_draws_watts() -> None:
    """65 percent of 700 W, and 4 of 96 cores at 70 percent of 700 W."""
    found = scored(CARDS, ENERGY, node(gpus=1))

    assert found["marginal_w"] == pytest.approx([0.65 * 700 + 4 / 96 * 0.7 * 700])


def test_the_only_core_of_a_node_draws_all_its_watts() -> None:
    single = node(hardware=hardware("n", cores=1, watts=100))

    assert scored(ask("p", cores=1), ENERGY, single)["marginal_w"] == pytest.approx([70.0])


def test_watts_count_with_the_cooling_of_a_polled_room() -> None:
    hall = Hall(pue=1.5, is_polled=True)
    columns = TwinColumns.of({"n0": node()}, 0, Halls(("hall",), (hall, hall)))

    found = score(ask("p", cores=96), columns, np.array([1]), NOON, 0, ENERGY)

    assert found["marginal_w"] == pytest.approx([1.5 * 0.7 * 700])


def test_an_empty_node_costs_its_idle_watts() -> None:
    found = scored(POD, ENERGY, node(), node(cores=40), node(cores=80))

    assert found["activation_w"][0] == 350.0
    assert found.answer.argsort().tolist() == [0, 1, 2]


def test_a_node_with_pods_of_daemon_sets_alone_costs_its_idle_watts() -> None:
    """Every node of a cluster has some, and it sleeps with them."""
    daemons, mixed = node(cores=0.5, pods=3, daemon_pods=3), node(cores=8, pods=4, daemon_pods=3)

    found = scored(POD, ENERGY, daemons, mixed)

    assert found["activation_w"][0] == 350
    assert found["activation_w"][1] < 100
    assert best(found) == 1


def test_a_pod_with_cards_starts_no_empty_node_while_another_has_free_cards() -> None:
    assert best(scored(CARDS, ENERGY, node(gpus=8), node(cores=12, cards=1, gpus=8))) == 1


def test_the_watts_of_the_pod_are_those_of_the_other_scoring() -> None:
    nodes = [node(gpus=8), node(cores=3)]
    for pod in (CARDS, replace(CARDS, memory_bytes=20 * 2**30)):
        by_energy, by_headroom = (scored(pod, each, *nodes) for each in (ENERGY, AVOID))

        found, usual = by_energy["marginal_w"].tolist(), by_headroom["marginal_w"].tolist()
        assert found == pytest.approx(usual)


def test_a_draining_node_loses_points_for_a_standard_pod() -> None:
    found = scored(POD, ENERGY, node(cores=40), node(cores=40, draining=True))

    assert (found.score - found.score[0]).tolist() == [0.0, -20.0]


def test_the_terms_of_a_node_name_their_source() -> None:
    found = scored(POD, ENERGY, node(cores=40), NodeState(ordinal=1, at=NOON))

    assert [terms_of(found, ["a", "b"], at).source for at in (0, 1)] == ["energy", "undiscovered"]


def test_entries_of_another_energy_formula_have_no_weights_here() -> None:
    declared = declaration(ENERGY)

    assert declared.values["energy_formula"] == FORMULA
    assert weights_of(declared) == ENERGY
    for formula in ({"energy_formula": FORMULA + 1}, {}):
        values = {name: each for name, each in declared.values.items() if name != "energy_formula"}
        assert weights_of(replace(declared, values=values | formula)) is None


questions = st.builds(
    reference_scoring.question,
    reference_scoring.cluster_states,
    reference_scoring.pods,
    reference_scoring.views,
    st.builds(
        lambda weights, scoring: dataclasses.replace(weights, scoring=scoring),
        reference_scoring.any_weights,
        st.sampled_from(["headroom", "energy"]),
    ),
    reference_scoring.buildings,
    reference_scoring.cards,
)


@thorough
@given(questions)
def test_an_unknown_node_never_scores_best(asked: tuple[Question, TwinColumns]) -> None:
    question, twin_columns = asked
    rows = np.array([0, *twin_columns.rows.values()])

    found = score(question.pod, twin_columns, rows, question.now, question.age_ms, question.weights)

    known = found.basis > 0
    if known.any():
        assert found.score[~known].max() <= found.score[known].max()


@thorough
@given(questions)
def test_a_decision_is_recomputed_bit_for_bit(asked: tuple[Question, TwinColumns]) -> None:
    question, twin_columns = asked
    context = DecisionContext(twin_columns, 7, question.age_ms, question.now)
    names = [*twin_columns.rows, "a stranger"]
    decision = decide_prioritize(question.pod, names, context, question.weights)
    sent = producer("extender-0").stamp(decision)
    read = codec.decoded(sent.data, "here")
    weights = weights_of(declaration(question.weights))

    assert weights is not None
    assert isinstance(read, PrioritizeDecided)
    assert again(read, twin_columns, weights) == decision


@thorough
@given(
    st.floats(0, 90),
    st.sampled_from(
        [AVOID, ALLOW, ENERGY, dataclasses.replace(ENERGY, cpu_pods_on_gpu_nodes="allow")]
    ),
    st.floats(0, 8),
)
def test_free_cards_never_raise_the_score_of_a_pod_without_cards(
    cores: float, weights: Weights, used: float
) -> None:
    """The nodes differ in the requests for cards alone."""
    found = scored(POD, weights, node(cores, used, gpus=8), node(cores, 8, gpus=8), node(cores))

    assert found.score[0] <= found.score[1]


def test_the_cheapest_known_node_has_all_points_beside_a_cheaper_unknown_one() -> None:
    unknown = replace(node(cores=80, samples=()), at=NOON - 3_600 * SECOND)

    found = scored(POD, ENERGY, unknown, node())

    assert found["activation_w"][0] < found["activation_w"][1]
    assert found.score[1] == 100.0


def test_a_declaration_of_newer_code_has_no_weights() -> None:
    declared = declaration(ENERGY)

    for name in ("later", "gpu_later", "coefficient_later"):
        newer = replace(declared, values={**declared.values, name: 1})
        assert weights_of(newer) is None


# --- caps ---------------------------------------------------------------------------------------

AT_ITS_CAP: dict[str, Any] = {
    "profile": "eco",
    "cpu_cap_pct": 50,
    "samples": (Sample(NOON, 340_000),),
}


def test_a_pod_goes_to_no_node_past_its_cap_while_another_has_room() -> None:
    capped = node(cores=60, **AT_ITS_CAP)
    found = scored(POD, ENERGY, capped, node(), node(cores=60, **AT_ITS_CAP))

    assert best(found) == 1
    assert found["over_cap"][1] == 0 < found["over_cap"][0] == found["over_cap"][2]
    assert found.score[0] <= max(0.0, found.score[1] - 20)


def test_a_cap_with_room_for_the_pod_costs_nothing() -> None:
    known: dict[str, Any] = AT_ITS_CAP | {"samples": (Sample(NOON, 200_000),)}
    found = scored(POD, ENERGY, node(cores=60, **known), node())

    assert ("over_cap" in found.more, best(found)) == (False, 0)


def test_a_full_node_whose_cap_nobody_lowered_is_packed_on() -> None:
    busy: dict[str, Any] = AT_ITS_CAP | {"cpu_cap_pct": 100, "samples": (Sample(NOON, 690_000),)}
    found = scored(POD, ENERGY, node(cores=60, **busy), node())

    assert ("over_cap" in found.more, best(found)) == (False, 0)


def test_caps_order_nothing_where_no_node_has_room() -> None:
    full = [node(cores=cores, **AT_ITS_CAP) for cores in (60, 40)]

    assert "over_cap" not in scored(POD, ENERGY, *full).more


def test_a_node_without_data_is_not_a_node_with_room() -> None:
    found = scored(POD, ENERGY, node(cores=60, **AT_ITS_CAP), NodeState(ordinal=1, at=NOON))

    assert "over_cap" not in found.more


def test_a_node_past_its_cap_stays_behind_the_most_that_a_score_can_be() -> None:
    """Labels give both nodes more points than a score has."""
    prefers = Preferences(all_pods=(Preference("zone", "a", 50.0),))
    weights = dataclasses.replace(ENERGY, preferences=prefers)
    here: dict[str, Any] = {"labels": {"zone": "a"}}

    found = scored(POD, weights, node(cores=60, **AT_ITS_CAP, **here), node(cores=60, **here))

    assert found.score == pytest.approx([80.0, 100.0])


def test_a_decision_with_caps_is_recorded_with_them_and_made_again() -> None:
    twin_columns, names = columns_of(node(cores=60, **AT_ITS_CAP), node())
    context = DecisionContext(twin_columns, 1, 0, NOON)
    decided = decide_prioritize(POD, names, context, ENERGY)
    read = codec.decoded(producer().stamp(decided).data, "here")

    assert isinstance(read, PrioritizeDecided)
    assert read == decided == again(read, twin_columns, ENERGY)
    capped = read.top[1]
    assert capped.later.more["over_cap"] > 0
    points = points_of(capped, ENERGY)
    assert points["over_cap"] == -capped.later.more["over_cap"]
    assert sum(points.values()) == pytest.approx(capped.score)


H100_MW = (73_000, 125_000, 199_000, 307_000, 483_000, 629_000, 692_000)


def with_curve(**changes: Any) -> NodeState:
    """Eight cards of a model that was measured."""
    found = hardware("n", cores=96, watts=700, gpus=8)
    figures = replace(found.figures, gpu_curve_mw=H100_MW)
    return node(hardware=replace(found, figures=figures), **changes)


def test_a_pod_shares_a_card_that_is_in_use_before_it_starts_another() -> None:
    half = ask("p", cores=1, gpus=0.5)
    busy = [with_curve(cards=cards, cores=8) for cards in (1.5, 1.0)]

    found = scored(half, ENERGY, *busy)

    assert found["process_w"].tolist() == [0.0, 52.0]
    assert best(found) == 0


def test_a_pod_gets_the_next_card_of_a_node_before_the_first_of_another() -> None:
    found = scored(CARDS, ENERGY, with_curve(cores=8), with_curve(cores=8, cards=1))

    assert found["first_card_w"].tolist() == [0.25 * 7 * 73, 0.0]
    assert best(found) == 1


def test_watts_of_measured_cards_follow_the_curve() -> None:
    performance = replace(CARDS, workload="performance")
    found = scored(performance, ENERGY, with_curve(cards=1), node(cards=1, gpus=8))

    whole_w = 629 + (692 - 629) * 0.4  # 85 % of the time
    added = found["marginal_w"] + found["process_w"]
    assert added[0] == pytest.approx(whole_w - 73 + 4 * 0.7 * 700 / 96)
    assert found["process_w"][1] == 0.0


def test_no_process_is_counted_where_no_card_was_measured() -> None:
    found = scored(CARDS, ENERGY, node(gpus=8, cores=8), node(gpus=8, cards=1))

    assert not {"process_w", "first_card_w"} & found.more.keys()
