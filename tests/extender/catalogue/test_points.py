"""What an entry says of its score, and what helps a pod that was refused."""

import pickle

import pytest
from msgspec.structs import replace

from bus_kit import ask
from joulie_bus.events import PodAsk, Terms, named_terms
from joulie_extender.catalogue.declaration import settings_id
from joulie_extender.catalogue.rules import advice_of
from joulie_extender.catalogue.terms import (
    CARDS,
    ENERGY,
    FIRST,
    HEADROOM,
    formula_of,
    head_of,
    point_names,
    points_of,
    watts_of,
)
from joulie_extender.catalogue.weights import Weights
from joulie_extender.rules.eco import ECO
from joulie_extender.rules.node_class import DRAINING, STALE_ADVICE

ZEROS = dict.fromkeys(("score", *FIRST), 0.0)


def terms(source: str, score: float = 0.0, **values: float) -> Terms:
    first = {**ZEROS, **{name: value for name, value in values.items() if name in FIRST}}
    more = {name: value for name, value in values.items() if name not in FIRST}
    return named_terms("n", source, {**first, "score": score}, more)


# --- points -------------------------------------------------------------------------------------


def test_a_term_adds_its_value_by_its_weight() -> None:
    weights = Weights(headroom=0.5, cooling=0.25)
    found = points_of(
        terms("measured", headroom=60.0, cooling=40.0, trend=3.0, draining=7.0, cards_kept=5.0),
        weights,
    )

    assert (found["headroom"], found["cooling"], found["trend"]) == (30.0, 15.0, 3.0)
    assert (found["draining"], found["cards_kept"]) == (-7.0, -5.0)


def test_the_first_terms_have_points_even_if_they_are_zero_and_later_ones_only_if_not() -> None:
    found = points_of(terms("measured"), Weights(cooling=0.25))

    assert found == {
        "headroom": 0.0, "cooling": 25.0, "trend": 0.0, "bonus": 0.0, "pressure": 0.0,
        "draining": 0.0,
    }  # fmt: skip
    assert "wishes" in points_of(terms("measured", wishes=1.0), Weights())


def test_the_watts_of_an_energy_score_have_what_no_other_term_has() -> None:
    found = points_of(terms("energy", score=70.0, wishes=5.0, draining=2.0), Weights())

    assert found["watts"] == 70.0 - 5.0 + 2.0
    assert sum(found.values()) == 70.0
    assert "watts" not in points_of(terms("measured", score=70.0), Weights())


@pytest.mark.parametrize("source", ["neutral", "undiscovered"])
def test_a_score_without_data_is_one_number(source: str) -> None:
    assert points_of(terms(source, score=50.0, bonus=3.0), Weights()) == {"neutral": 50.0}


def test_the_watts_behind_a_score_are_named_without_their_unit() -> None:
    headroom = watts_of(terms("measured", marginal_w=12.0, assumed_w=3.0))
    energy = watts_of(terms("energy", marginal_w=12.0))

    assert (headroom["marginal"], headroom["assumed"]) == (12.0, 3.0)
    assert sum(headroom.values()) == 15.0
    assert set(headroom) == {term.name.removesuffix("_w") for term in HEADROOM.inputs}
    assert set(energy) == {term.name.removesuffix("_w") for term in ENERGY.inputs}


def test_an_entry_names_its_formula_by_its_source() -> None:
    assert [formula_of(source) for source in ("energy", "cards", "measured", "predicted")] == [
        ENERGY, CARDS, HEADROOM, HEADROOM,
    ]  # fmt: skip


def test_no_formula_gave_the_score_of_a_node_without_data_or_of_an_unknown_source() -> None:
    assert [formula_of(source) for source in ("neutral", "undiscovered", "tide", "")] == [None] * 4
    assert points_of(terms("tide", score=50.0), Weights()) == {}
    assert watts_of(terms("undiscovered", marginal_w=3.0)) == {}


def test_a_node_without_data_has_the_terms_that_change_a_finished_score() -> None:
    found = points_of(terms("neutral", score=50.0, bonus=3.0, gang=-4.0), Weights())

    assert found == {"neutral": 54.0, "gang": -4.0}


def test_terms_have_words_of_their_own() -> None:
    assert [head_of(name) for name in ("headroom", "lost_gpus", "lost_gpus_w", "activation")] == [
        "headroom", "lost GPUs", "lost GPUs", "activation",
    ]  # fmt: skip
    assert head_of("reserve") == head_of("cards_kept") == "cards kept"
    assert head_of("of_a_new_version") == "of a new version"
    assert not any("_" in head_of(name) for name in point_names())


def test_every_name_of_points_comes_once_in_the_order_of_the_sums() -> None:
    names = point_names()

    assert len(set(names)) == len(names)
    assert names[: len(HEADROOM.added)] == [term.name for term in HEADROOM.added]
    assert {"watts", "neutral"} <= set(names)
    assert names[-1] == "neutral"
    assert HEADROOM.point_names() == [term.name for term in HEADROOM.added]
    assert ENERGY.point_names()[-1] == "watts"


def test_the_columns_that_are_shown_begin_with_what_the_score_follows_from() -> None:
    columns = [term.name for term in ENERGY.columns]

    assert columns[0] in {term.name for term in ENERGY.inputs}
    assert HEADROOM.columns[0].name == "headroom"
    assert all(term.head for term in (*ENERGY.columns, *HEADROOM.columns))


# --- advice -------------------------------------------------------------------------------------


def advice(code: int, pod: PodAsk) -> str:
    return advice_of(code, pod)


def test_a_pod_gets_the_advice_of_the_rule_that_is_about_it() -> None:
    performance = ask(performance=True)
    eco_only = replace(ask(), placement="eco-only")

    assert "static_hp_frac" in advice(DRAINING, performance).lower()
    assert advice(DRAINING, eco_only) == "It passes when the drain ends; drain_deadline bounds it."
    assert "static_hp_frac" in advice(ECO, ask()).lower()  # of another pod than the rule is about
    assert advice(4, performance) == advice(4, eco_only) == STALE_ADVICE
    assert advice(5, ask()).startswith("It passes when the power target ends")
    assert advice(99, ask()) == ""


# --- settings -----------------------------------------------------------------------------------


def test_an_id_of_settings_is_sixteen_characters_and_computed_once() -> None:
    weights = Weights()

    assert len(settings_id(weights)) == 16
    weights.memo["id"] = "kept"
    assert settings_id(weights) == "kept"


def test_weights_are_the_same_in_another_process_but_for_their_hash() -> None:
    weights = Weights(headroom=0.5)
    assert hash(weights)
    copied = pickle.loads(pickle.dumps(weights))

    assert copied == weights
    assert not {"_hash", "memo"} & set(vars(copied))
