"""Entries of the decision log as sentences, and what candidates lost by."""

import pytest
from msgspec.structs import replace

from bus_kit import NOON, ask, producer
from joulie_answers.views.decision_text import (
    DescribedEntry,
    EntryRow,
    describe,
    loss_of,
    term_set,
)
from joulie_bus.events import DecisionEntry, DecisionsDropped, OutcomeSeen, Terms, named_terms
from joulie_extender.catalogue.terms import FIRST
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_projections.state.completeness import NEVER_MS
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import RowNames


def described(entry: int, event: DecisionEntry, pod: str = "team/web") -> DescribedEntry:
    row = EntryRow(entry, f"e:{entry}", pod, "web", NOON, producer().stamp(event).data)
    return describe(row, RowNames(0, 0, ()), {})


def test_decisions_without_a_view_say_so() -> None:
    empty = DecisionContext(TwinColumns.empty(), 0, NEVER_MS, NOON)
    pod, weights = ask("web"), Weights()
    filtered = described(1, decide_filter(pod, ["n1", "n2"], empty, weights))
    scored = described(2, decide_prioritize(pod, ["n1", "n2"], empty, weights))

    assert filtered.brief.text == "all 2 nodes pass, without a view of the cluster"
    assert scored.brief.text.endswith(", without a view of the cluster")
    assert (scored.brief.view, scored.brief.view_age_ms) == (0, None)
    assert scored.brief.view_text.startswith("none: the extender had no view")


def test_each_entry_is_a_sentence_about_its_pod() -> None:
    empty = DecisionContext(TwinColumns.empty(), 0, NEVER_MS, NOON)
    passed = decide_filter(ask("web"), ["n1", "n2"], empty, Weights())
    reason = "2 nodes: no free cards"
    refused = replace(passed, verdicts=bytes([1, 1]), reason=reason)
    where: dict[str, str] = {"pod_uid": "web", "namespace": "team", "name": "web", "node": "n1"}
    events: list[DecisionEntry] = [
        passed,
        refused,
        OutcomeSeen(**where, rank=1),  # type: ignore[arg-type]
    ]
    of_none = described(1, DecisionsDropped(count=2, why="the spool is full"), pod="")

    assert [described(1, event).brief.sentence for event in events] == [
        "For team/web, all 2 nodes pass, without a view of the cluster.",
        f"team/web is refused on all 2 nodes: {reason}.",
        "team/web runs on n1, ranked 1.",
    ]
    assert of_none.brief.sentence == "2 decisions dropped: the spool is full."


# --- what a candidate lost by -------------------------------------------------------------------


def terms(node: str, source: str, score: float, **values: float) -> Terms:
    first = {"score": score, **dict.fromkeys(FIRST, 0.0)}
    known = {name: value for name, value in values.items() if name in FIRST}
    more = {name: value for name, value in values.items() if name not in FIRST}
    return named_terms(node, source, {**first, **known}, more)


BY_WATTS = terms("n1", "energy", 100.0, marginal_w=10.0, activation_w=5.0)


@pytest.mark.parametrize(
    ("loser", "term", "text"),
    [
        (
            terms("n2", "energy", 80.0, marginal_w=10.0, activation_w=67.5),
            "activation",
            "20.0 behind, most of it activation",
        ),
        (
            terms("n2", "energy", 80.0, marginal_w=10.0, activation_w=5.0, lost_gpus_w=62.5),
            "lost_gpus",
            "20.0 behind, most of it lost GPUs",
        ),
        (
            terms("n2", "neutral", 50.0, marginal_w=10.0),
            "neutral",
            "50.0 behind, by the neutral score: no twin, or a stale one",
        ),
        (
            terms("n2", "undiscovered", 50.0),
            "neutral",
            "50.0 behind, by the neutral score: no hardware facts, so no cap",
        ),
        (terms("n2", "measured", 60.0, headroom=80.0), "", "40.0 behind"),
        (terms("n2", "tide", 60.0), "", "40.0 behind"),
        (terms("n2", "neutral", 100.0), "", "level"),
    ],
)
def test_a_candidate_lost_by_a_term_of_the_same_formula_or_by_the_neutral_score(
    loser: Terms, term: str, text: str
) -> None:
    loss = loss_of(BY_WATTS, loser, Weights(scoring="energy"))

    assert (loss.term, loss.text) == (term, text)


def test_without_its_settings_a_decision_has_no_points() -> None:
    winner, loser = terms("n1", "measured", 80.0, headroom=90.0), terms("n2", "measured", 70.0)

    assert loss_of(winner, loser, Weights()).term == "headroom"
    assert (loss_of(winner, loser, None).term, term_set(winner, None).points) == ("", None)


def test_a_node_without_data_has_no_values_that_its_score_rests_on() -> None:
    shown = term_set(terms("n1", "undiscovered", 54.0, marginal_w=3.0, gang=4.0), Weights())

    assert shown.values == {"gang": 4.0}
    assert shown.points == {"neutral": 50.0, "gang": 4.0}
