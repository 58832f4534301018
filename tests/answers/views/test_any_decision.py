"""Every decision that the format allows can be listed, described and explained: a law."""

import math
import re
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus_kit import NOON, ask, producer
from joulie_answers.readers.attempt_values import Beside, attempt_of, outcome_brief
from joulie_answers.readers.attempts import NamedAttempt
from joulie_answers.schema.responses import PodDetail
from joulie_answers.text.decisions import decisions_text
from joulie_answers.text.pod import pod_text, sentences
from joulie_answers.text.score_table import score_table
from joulie_answers.text.tables import TextWithTables
from joulie_answers.views import decision_text
from joulie_answers.views.decision_text import (
    DescribedEntry,
    EntryRow,
    candidates_of,
    considers,
    describe,
    loss_of,
    term_set,
)
from joulie_answers.views.placements import placements
from joulie_audit.questions.explain import Explanation, outcome_of
from joulie_bus.events import (
    DecisionEntry,
    FilterDecided,
    PreemptDecided,
    PrioritizeDecided,
    Terms,
)
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_console.views.pod_traces import PodTraces
from joulie_extender.catalogue.terms import formula_of, is_without_data
from joulie_extender.catalogue.weights import Weights
from joulie_extender.debug.pages import explanation
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import RowName, RowNames
from odd_decisions import WEIGHTS, any_decision, any_scored, any_terms

NAMES = RowNames(0, 10, [RowName(0, row, f"n{row}") for row in range(3)])
ALL_WEIGHTS = [None, *WEIGHTS.values()]


def described(events: Sequence[DecisionEntry]) -> list[DescribedEntry]:
    """Newest first."""
    stamp = producer().stamp
    rows = (
        EntryRow(number, f"e:{number}", "team/web", "web", NOON, stamp(event).data)
        for number, event in enumerate(events, 1)
    )
    return [describe(row, NAMES, WEIGHTS) for row in rows][::-1]


def pod_detail(scored: PrioritizeDecided, node: str, weights: Weights | None) -> PodDetail:
    """The answer about a pod that was scored, and that is on `node`."""
    found = Explanation(
        pod=scored.pod,
        attempts=1,
        decided_at=NOON,
        view=scored.basis.view,
        view_age_ms=None,
        behind_ms=None,
        view_text="",
        settings=scored.basis.settings,
        candidates=scored.candidates.count,
        filtered=None,
        scored=scored,
        entries=[1],
        rejections=[],
        outcome=outcome_of(scored, node, NAMES) if node else None,
    )
    answers = NamedAttempt(found, NAMES).answers()
    unknown = "" if weights else "the settings are not in the log"
    beside = Beside(answers=answers, placed_on=node, settings_unknown=unknown)
    return PodDetail(
        position=1,
        at_ms=0,
        age_ms=0,
        behind_ms=0,
        pod=None,
        decisions=[],
        explanation=[],
        attempt=attempt_of(found, weights, beside),
        outcome=outcome_brief(found.outcome),
        group=None,
    )


def assert_sound(text: str) -> None:
    """No number that is none, and no value that was not found, as a word."""
    assert not re.search(r"\b(nan|inf|None)\b", text), text


@given(st.lists(any_decision, max_size=4))
def test_every_entry_is_a_line(events: list[DecisionEntry]) -> None:
    found = described(events)

    assert [each.fault for each in found] == [None] * len(events)
    text = decisions_text([each.brief for each in found])
    assert len(text.splitlines()) == 1 + len(events)
    assert_sound(text)
    assert all(isinstance(each.nodes(), frozenset) for each in found)
    assert msgspec.json.encode([each.brief for each in found])
    assert len(placements(reversed(events))) <= 1
    for event in events:
        assert considers(event, "n1", NAMES.spans_of("n1")) in (True, False)
        if isinstance(event, FilterDecided | PrioritizeDecided | PreemptDecided):
            assert msgspec.json.encode(explanation([event], NAMES))


@given(any_decision, st.sampled_from(ALL_WEIGHTS))
def test_every_candidate_is_described_once(event: DecisionEntry, weights: Weights | None) -> None:
    found = candidates_of(event, NAMES, weights)

    asked = getattr(event, "candidates", None)
    assert len(found) <= (asked.count if asked else 0)
    assert not any("could not be described" in each.verdict for each in found)
    assert msgspec.json.encode(found)
    assert_sound(str(TextWithTables.of(score_table([each for each in found if each.terms], "n1"))))


@given(any_decision)
def test_every_entry_is_a_span(event: DecisionEntry) -> None:
    data = producer().stamp(event).data
    record = Record(Stream.DEC, 1, NOON + 10, data)

    assert len(PodTraces().spans_of(record)) == 1


@given(any_scored(), st.sampled_from(["", "n0", "n5", "gone"]), st.sampled_from(ALL_WEIGHTS))
def test_the_page_and_the_command_tell_the_story_of_every_attempt(
    scored: PrioritizeDecided, node: str, weights: Weights | None
) -> None:
    found = pod_detail(scored, node, weights)

    page, command = sentences(found), pod_text(found)

    for line in page:
        label, _, text = line.partition(": ")
        assert f"  {label:<11}{text}" in command
    assert_sound(command)
    assert msgspec.json.encode(found)
    if node and outcome_of(scored, node, NAMES).rank is not None:
        assert f"  *{node} " in command  # the node where the pod is has a line of its own


@given(any_terms("n1"), any_terms("n2"), st.sampled_from(ALL_WEIGHTS))
def test_only_terms_of_one_formula_are_compared(
    winner: Terms, loser: Terms, weights: Weights | None
) -> None:
    loss = loss_of(winner, loser, weights)

    if weights is None or formula_of(winner.source) is not formula_of(loser.source):
        assert loss.term in ("", "neutral")
    if is_without_data(loser.source) and loss.term:
        assert (loss.term, loss.points) == ("neutral", loss.behind)
    assert loss.points >= 0


@given(any_terms("n1"), st.sampled_from([*WEIGHTS.values()]))
def test_points_are_known_of_every_source_that_this_code_knows(
    terms: Terms, weights: Weights
) -> None:
    points = term_set(terms, weights).points

    assert (points is None) == (terms.source in ("", "tide"))
    if points is not None and is_without_data(terms.source):
        assert math.isclose(sum(points.values()), terms.score, rel_tol=1e-6, abs_tol=1e-2)


# --- a description that fails --------------------------------------------------------------------


def test_a_description_that_fails_hides_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("activation")

    context = DecisionContext(TwinColumns.empty(), 1, 0, NOON)
    filtered = decide_filter(ask("web"), ["n1", "n2"], context, Weights())
    scored = decide_prioritize(ask("web"), ["n1", "n2"], context, Weights())
    monkeypatch.setattr(decision_text, "loss_of", fail)

    failed, shown = described([filtered, scored])
    first, second = candidates_of(scored, NAMES, Weights())

    assert isinstance(failed.fault, KeyError)
    assert "could not be described (KeyError: 'activation')" in failed.brief.text
    assert (shown.fault, shown.brief.text) == (None, "all 2 nodes pass")
    assert (first.verdict, first.terms is None) == ("", False)
    assert (second.node, second.terms) == ("n2", None)
    assert "could not be described (KeyError: 'activation')" in second.verdict
