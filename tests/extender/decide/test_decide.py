from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import NOON, ask, hardware, producer
from joulie_bus.events import Decision, FilterDecided, PreemptDecided, PrioritizeDecided, codec
from joulie_extender.catalogue.declaration import declaration, settings_id, weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import (
    DecisionContext,
    answered_scores,
    decide_filter,
    decide_prioritize,
    filter_decision,
    names_of,
    passed,
    preempt_decision,
    prioritize_decision,
    rows_of,
)
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.terms.preferences import Preference, Preferences, Team
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.capacity_reserve import CapacityReserve
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.power import Coefficients

NODES = {
    f"n{at}": NodeState(
        ordinal=at,
        at=NOON,
        hardware=hardware(f"n{at}"),
        profile="eco" if at % 2 else "performance",
        samples=(Sample(NOON, 70_000 * at),),
    )
    for at in range(8)
}
BOARD = TwinColumns.of(NODES, 0)
MOMENT = DecisionContext(BOARD, 41, 12, NOON)
POD = ask("p", performance=True, cores=4)
asked = st.lists(st.sampled_from([*NODES, "x", "y"]), max_size=12)


def over_the_wire(decision: Decision) -> Decision:
    sent = producer("extender-0").stamp(decision)
    read = codec.decoded(sent.data, "here")
    assert isinstance(read, FilterDecided | PrioritizeDecided)
    return read


@settings(deadline=None, max_examples=60)
@given(asked)
def test_a_filter_decision_can_be_made_again_from_the_log(names: list[str]) -> None:
    told = over_the_wire(decide_filter(POD, names, MOMENT, Weights()))

    rows = rows_of(told.candidates)
    assert filter_decision(told.pod, told.candidates, rows, MOMENT, Weights()) == told


@settings(deadline=None, max_examples=60)
@given(asked)
def test_a_prioritize_decision_can_be_made_again_from_the_log(names: list[str]) -> None:
    told = over_the_wire(decide_prioritize(POD, names, MOMENT, Weights()))

    again = names_of(told.candidates, BOARD)
    assert again == names
    assert prioritize_decision(told.pod, told.candidates, again, MOMENT, Weights()) == told


@settings(deadline=None, max_examples=60)
@given(asked)
def test_a_preempt_decision_refuses_what_the_filter_refuses_and_can_be_made_again(
    names: list[str],
) -> None:
    filtered = decide_filter(POD, names, MOMENT, Weights())
    rows = rows_of(filtered.candidates)

    told = preempt_decision(POD, filtered.candidates, rows, MOMENT, Weights())

    sent = codec.open_envelope(producer("extender-0").stamp(told).data, "here")
    read = codec.read(sent, "here")
    assert isinstance(read, PreemptDecided)
    assert read.verdicts == filtered.verdicts
    assert preempt_decision(read.pod, read.candidates, rows, MOMENT, Weights()) == told == read


def test_strangers_keep_their_place_and_their_names() -> None:
    names = ["x", "n3", "y", "n0", "x"]
    decision = decide_prioritize(POD, names, MOMENT, Weights())

    assert decision.candidates.strangers == ["x", "y", "x"]
    assert names_of(decision.candidates, BOARD) == names
    assert (answered_scores(decision) == 50).tolist() == [True, False, True, False, True]


def test_a_candidate_costs_four_bytes() -> None:
    decision = decide_filter(POD, list(NODES), MOMENT, Weights())

    assert (len(decision.candidates.ordinals), len(decision.verdicts)) == (4 * 8, 8)


def test_an_entry_about_5000_candidates_takes_less_than_40_kb() -> None:
    states = [
        NodeState(ordinal=at, at=NOON, hardware=hardware("n"), samples=(Sample(NOON, 9973 * at),))
        for at in range(5000)
    ]
    names = [f"node-{at:05d}.example.internal" for at in range(5000)]
    context = DecisionContext(
        TwinColumns.of(dict(zip(names, states, strict=True)), 0), 41, 12, NOON
    )
    made = [decide(POD, names, context, Weights()) for decide in (decide_filter, decide_prioritize)]

    assert max(len(producer("extender-0").stamp(entry).data) for entry in made) < 40_000


def test_an_answer_names_its_basis() -> None:
    basis = decide_filter(POD, ["n0"], MOMENT, Weights()).basis

    assert (basis.view, basis.view_age_ms, basis.now) == (41, 12, NOON)
    assert basis.settings == settings_id(Weights())


def test_verdicts_are_what_is_answered() -> None:
    decision = decide_filter(POD, ["n0", "n1", "x", "n2"], MOMENT, Weights())

    assert passed(decision) == [True, False, True, True]


def test_the_five_best_are_explained_in_full() -> None:
    decision = decide_prioritize(POD, list(NODES), MOMENT, Weights())

    assert [terms.node for terms in decision.top] == ["n0", "n1", "n2", "n3", "n4"]


RATES, FIELDS = (
    Coefficients(),
    {each.name for each in fields(Weights)} - {"coefficients", "gpu", "preferences", "reserve"},
)
OTHERS = [
    *(Weights(**{name: 3.25}) for name in sorted(FIELDS)),  # type: ignore[arg-type]
    Weights(coefficients=RATES._replace(cpu=0.5)),
    Weights(coefficients=RATES._replace(gpu_standard=0.5)),
    Weights(coefficients=RATES._replace(gpu_performance=0.5)),
    Weights(coefficients=RATES._replace(memory_factor=False)),
    Weights(reserve=CapacityReserve(cards=0.5)),
    Weights(reserve=CapacityReserve(cores_beside_card=8.0)),
    Weights(reserve=CapacityReserve(cores=0.5)),
    Weights(reserve=CapacityReserve(cores_per_card=8.0)),
    Weights(gpu=GpuWeights(binpack=0.5)),
    Weights(gpu=GpuWeights(links=0.5)),
    Weights(gpu=GpuWeights(packing="fit")),
    Weights(gpu=GpuWeights(balance=0.5)),
    Weights(gpu=GpuWeights(resources="vendor.example/gpu")),
    Weights(preferences=Preferences((Preference("pool", "spot", 5.0),))),
    Weights(preferences=Preferences((), (Team("t", ("ns",), (Preference("a", "b", -1.5),)),))),
    Weights(gpu=GpuWeights(aliases=(("A100", "Ampere 100"), ("T4",)))),
]


def test_any_other_weight_is_another_setting() -> None:
    ids = {settings_id(weights) for weights in [Weights(), *OTHERS]}

    assert len(ids) == len(OTHERS) + 1


@pytest.mark.parametrize(
    "weights",
    [Weights(), *(each for each in OTHERS if each.energy_formula == Weights().energy_formula)],
)
def test_weights_survive_their_declaration(weights: Weights) -> None:
    told = codec.decoded(producer().stamp(declaration(weights)).data, "here")

    assert told == declaration(weights)
    assert weights_of(declaration(weights)) == weights
