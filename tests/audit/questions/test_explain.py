"""Explanations of placements, from the log alone."""

from datetime import UTC, datetime
from operator import attrgetter

import msgspec
import pytest
from msgspec.structs import replace

from audit_kit import NAMES, RecordedLog, about_node, record_small_log
from bus_kit import NOON, SECOND, ask, bound, hardware, node_seen
from joulie_answers.readers.attempt_values import Beside, attempt_of
from joulie_answers.readers.history import row_of
from joulie_answers.schema import responses
from joulie_answers.schema.responses import Candidate, PodDetail
from joulie_answers.text.decisions import decisions_text
from joulie_answers.text.pod import pod_text
from joulie_answers.text.score_table import score_table
from joulie_answers.text.tables import TextTable
from joulie_answers.views.decision_text import describe, term_set
from joulie_audit.questions.explain import (
    Explanation,
    Outcome,
    Rejection,
    explain_pod,
    outcome_of,
    recompute_terms,
    weights_in,
)
from joulie_bus.errors import NotInTheLog
from joulie_bus.events import NodeGone, OutcomeSeen, Terms
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_projections.history.history import EntryQuery
from joulie_projections.state.completeness import NEVER_MS
from joulie_projections.state.state import NodeState, Sample
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import RowNames
from state_at import Binding, binding_of, cluster_state_at

pytestmark = pytest.mark.anyio


def answer_about(found: Explanation, weights: Weights | None = None) -> PodDetail:
    return PodDetail(
        position=1,
        at_ms=0,
        age_ms=0,
        behind_ms=0,
        pod=None,
        decisions=[],
        explanation=[],
        attempt=attempt_of(found, weights, Beside()),
        outcome=None,
        group=None,
    )


async def test_the_last_attempt_is_explained_with_its_view_and_entries(
    small_log: RecordedLog,
) -> None:
    async with small_log.reading() as (history, _):
        found = explain_pod(history, "team/early-2")

    assert (found.pod, found.attempts) == (ask("early-2", performance=True, cores=8), 1)
    assert (found.view, found.view_age_ms, found.entries) == (12, 3, [4, 5])
    assert found.scored is not None
    assert [terms.node for terms in found.scored.top] == ["n1", "n2", "n3", "n4"]
    assert (found.rejections, found.outcome) == ([], None)


@pytest.mark.parametrize("name", ["team/late-2", "late-2"])
async def test_refused_nodes_are_counted_by_their_reason(small_log: RecordedLog, name: str) -> None:
    async with small_log.reading() as (history, _):
        found = explain_pod(history, name)

    assert found.rejections == [Rejection("eco", 2, ["n3", "n4"])]
    assert found.filtered is not None
    assert "reserved for saving energy" in found.filtered.reason


async def test_a_retried_pod_is_explained_by_its_last_attempt(small_log: RecordedLog) -> None:
    await small_log.builder.answer(ask("early-1"), ["n2"])
    async with small_log.reading() as (history, _):
        found = explain_pod(history, "early-1")

    assert (found.attempts, found.view) == (2, small_log.builder.position)
    assert found.scored is not None
    assert [terms.node for terms in found.scored.top] == ["n2"]


async def test_a_reused_name_means_the_newest_pod(small_log: RecordedLog) -> None:
    await small_log.builder.answer(replace(ask("early-1"), uid="another"))
    async with small_log.reading() as (history, _):
        found = explain_pod(history, "team/early-1")

    assert (found.pod.uid, found.attempts) == ("another", 1)


async def test_an_outcome_in_the_log_is_part_of_the_explanation(small_log: RecordedLog) -> None:
    seen = OutcomeSeen(
        pod_uid="late-1", namespace="team", name="late-1", node="n3", rank=2, score=70
    )
    await small_log.builder.publish(seen)
    async with small_log.reading() as (history, _):
        found = explain_pod(history, "team/late-1")

    assert found.outcome == Outcome("n3", 2, 70, "the log")


async def test_a_decision_without_a_view_is_explained_without_its_numbers(
    small_log: RecordedLog,
) -> None:
    empty = DecisionContext(TwinColumns.empty(), 0, NEVER_MS, NOON)
    scored = decide_prioritize(ask("blind"), ["n1"], empty, Weights())
    await small_log.builder.publish(scored)
    async with small_log.reading() as (history, _):
        found = explain_pod(history, "team/blind")
    answer = answer_about(found)

    assert "  view       none: the extender had no view of the cluster yet" in pod_text(answer)
    assert str(NEVER_MS) not in pod_text(answer)
    assert answer.attempt is not None
    assert answer.attempt.view_age_ms is None
    assert answer.attempt.view_text.startswith("none: the extender had no view")


async def test_without_a_logged_outcome_the_binding_gives_the_node(small_log: RecordedLog) -> None:
    await small_log.builder.facts(bound("late-1", "n2"))
    async with small_log.reading() as (history, facts):
        found = explain_pod(history, "team/late-1")
        where = await binding_of(history, facts, "late-1", found.view)
        outcome = outcome_of(found.scored, "n2", history.row_names(found.view))

    assert where == Binding(small_log.builder.position, "n2")
    assert (outcome.node, outcome.rank, outcome.said_by) == ("n2", 4, "its binding")
    assert msgspec.json.encode(outcome)  # numbers that JSON has


async def test_a_binding_that_is_read_before_its_scores_is_not_called_unscored(
    small_log: RecordedLog,
) -> None:
    empty = DecisionContext(TwinColumns.empty(), 0, NEVER_MS, NOON)
    await small_log.builder.publish(decide_filter(ask("soon"), ["n1"], empty, Weights()))
    async with small_log.reading() as (history, _):
        answer = answer_about(explain_pod(history, "team/soon"))
    bound_to = responses.Outcome(node="n1", rank=None, score=None, source="its binding")

    text = pod_text(replace(answer, outcome=bound_to))

    assert "outcome    bound to n1; the log has no scores of this attempt yet" in text


async def test_a_binding_to_an_unscored_node_has_no_rank(
    small_log: RecordedLog,
) -> None:
    async with small_log.reading() as (history, _):
        found = explain_pod(history, "team/late-2")
        outcome = outcome_of(found.scored, "n4", history.row_names(found.view))

    assert outcome == Outcome("n4", None, None, "its binding")


async def test_recomputed_terms_equal_the_recorded_ones(small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, facts):
        found = explain_pod(history, "team/early-1")
        cluster_state = await cluster_state_at(history, facts, found.view)
        weights = weights_in(history, found.settings)
        assert found.scored is not None
        assert weights is not None
        twin_columns = TwinColumns.of_state(cluster_state)
        again = [recompute_terms(found.scored, name, twin_columns, weights) for name in NAMES]

    assert sorted(again, key=lambda t: t.node if t else "") == sorted(
        found.scored.top, key=lambda terms: terms.node
    )


async def test_a_node_that_is_no_candidate_has_no_terms(small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, facts):
        found = explain_pod(history, "team/early-1")
        cluster_state = await cluster_state_at(history, facts, found.view)
        weights = weights_in(history, found.settings)
        assert found.scored is not None
        assert weights is not None
        twin_columns = TwinColumns.of_state(cluster_state)

        assert recompute_terms(found.scored, "n9", twin_columns, weights) is None


async def test_a_refusal_names_the_node_that_had_the_row_then(small_log: RecordedLog) -> None:
    await small_log.builder.facts(NodeGone(node="n4"), node_seen("n5"))
    async with small_log.reading() as (history, facts):
        found = explain_pod(history, "team/late-2")
        cluster_state = await cluster_state_at(history, facts, found.view)
        folded = RowNames.of_state(found.view, cluster_state)
        again = explain_pod(history, "team/late-2", folded)

    assert found.rejections == again.rejections == [Rejection("eco", 2, ["n3", "n4"])]


async def test_a_name_that_is_not_kept_is_unknown(small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, _):
        found = explain_pod(history, "team/late-2", RowNames(0, 0, ()))

    unknown = ["node #2 (name unknown)", "node #3 (name unknown)"]
    assert found.rejections == [Rejection("eco", 2, unknown)]


async def test_entries_about_a_node_are_found_by_its_row_of_that_time(
    small_log: RecordedLog,
) -> None:
    await small_log.builder.facts(NodeGone(node="n4"), node_seen("n5"))
    await small_log.builder.answer(ask("last"), ["n1", "n5"])
    async with small_log.reading() as (history, _):
        found = {
            node: [entry.pod for entry in filter(is_about, history.find(EntryQuery()))]
            for node, is_about in ((node, about_node(history, node)) for node in ("n4", "n5"))
        }

    assert set(found["n5"]) == {"team/last"}
    assert set(found["n4"]) == {"team/early-1", "team/early-2", "team/late-1", "team/late-2"}


# --- wrong names ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["team/unknown", "unknown", "", "team/"])
async def test_an_unknown_pod_gives_an_error_with_known_pods(
    small_log: RecordedLog, name: str
) -> None:
    async with small_log.reading() as (history, _):
        with pytest.raises(NotInTheLog) as reported:
            explain_pod(history, name or "''")

    assert "the newest are team/late-2, team/late-1" in str(reported.value)


async def test_an_empty_log_reports_that_there_are_no_decisions(recorded: RecordedLog) -> None:
    async with recorded.reading() as (history, _):
        with pytest.raises(NotInTheLog, match="The log has no decisions yet"):
            explain_pod(history, "team/a")


async def test_a_name_in_two_namespaces_is_ambiguous(small_log: RecordedLog) -> None:
    pod = ask("x")
    for namespace in ("one", "two"):
        uid = f"uid-{namespace}"
        await small_log.builder.answer(replace(pod, uid=uid, namespace=namespace, name="twin"))
    async with small_log.reading() as (history, _):
        with pytest.raises(NotInTheLog, match="matches several pods: one/twin, two/twin"):
            explain_pod(history, "twin")

        assert explain_pod(history, "uid-two").pod.namespace == "two"


# --- lists ------------------------------------------------------------------------------------


async def test_entries_are_found_by_pod_namespace_kind_and_time(small_log: RecordedLog) -> None:
    def found(wanted: EntryQuery, limit: int | None = None) -> list[int]:
        return [entry.pos for entry in history.find(wanted, limit)]

    async with small_log.reading() as (history, _):
        assert found(EntryQuery(), 3) == [9, 8, 7]
        assert found(EntryQuery(pod="team/early-1")) == found(EntryQuery(pod="early-1")) == [3, 2]
        assert found(EntryQuery(namespace="team", kinds=("decision.filter",))) == [8, 6, 4, 2]
        assert found(EntryQuery(namespace="tea")) == []
        assert found(EntryQuery(after=7)) == [9, 8]
        assert found(EntryQuery(since=small_log.builder.clock())) == [9, 8, 7, 6]


async def test_wildcards_in_a_name_match_literally(small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, _):
        assert list(history.find(EntryQuery(pod="%-1"))) == []
        assert list(history.find(EntryQuery(namespace="t_am"))) == []


async def test_entries_about_a_node_have_it_as_a_candidate(small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, _):
        is_about = about_node(history, "n4")
        entries = [entry.pos for entry in history.entries() if is_about(entry)]

    assert entries == [2, 3, 4, 5, 6, 7, 8]  # the last one scored only those that passed


async def test_the_name_of_a_node_gets_the_command_that_explains_nodes(
    small_log: RecordedLog,
) -> None:
    async with small_log.reading() as (history, _):
        with pytest.raises(NotInTheLog, match="`joulie explain node n4` explains it"):
            explain_pod(history, "n4")


async def test_an_entry_is_one_line(small_log: RecordedLog) -> None:
    async with small_log.reading() as (history, _):
        entry = next(history.entries(3, 3))
        described = describe(row_of(entry), history.row_names(), {})

    words = decisions_text([described.brief]).splitlines()[1].split()
    at = f"{datetime.fromtimestamp(entry.decided_at // 10**9, UTC):%Y-%m-%dT%H:%M:%SZ}"
    assert words[:5] == ["3", at, "prioritize", "For", "team/early-1,"]
    assert words[5] == described.brief.winner


def _candidate(terms: Terms) -> Candidate:
    shown = term_set(terms, Weights())
    return Candidate(node=terms.node, verdict="", answer=None, terms=shown, loss=None)


def test_an_explanation_names_the_rule_behind_a_headroom_without_a_reading() -> None:
    nodes = {
        "measured": NodeState(
            ordinal=0, at=NOON, hardware=hardware("n"), samples=(Sample(NOON, 100_000),)
        ),
        "unread": NodeState(ordinal=1, at=NOON, hardware=hardware("n")),
        "bare": NodeState(ordinal=2, at=NOON),
        "stale": NodeState(ordinal=3, at=NOON - 400 * SECOND, hardware=hardware("n")),
    }
    moment = DecisionContext(TwinColumns.of(nodes, 0), 1, 0, NOON)
    top = decide_prioritize(ask(), list(nodes), moment, Weights()).top

    assert {terms.node: terms.source for terms in top} == {
        "measured": "measured",
        "unread": "predicted",
        "bare": "undiscovered",
        "stale": "neutral",
    }
    found = [_candidate(terms) for terms in top]
    _, *rules = map(str, score_table(found, ""))
    reported = [line.split()[0] for line in rules]
    assert sorted(reported) == ["neutral", "predicted", "undiscovered"]


@pytest.mark.parametrize(
    ("weights", "title", "field"),
    [
        (Weights(), "cards kept", "cards_kept"),
        (Weights(scoring="energy"), "cards kept", "later.reserve_w"),
        (Weights(scoring="energy"), "activation", "later.activation_w"),
    ],
)
async def test_an_explanation_shows_the_terms_of_its_scoring(
    recorded: RecordedLog, weights: Weights, title: str, field: str
) -> None:
    made = recorded.builder
    made.weights = weights
    await record_small_log(recorded)
    await made.facts(hardware("n4", gpus=8))
    await made.answer(ask("web"))
    async with recorded.reading() as (history, _):
        explanation = explain_pod(history, "web")
    assert explanation.scored is not None

    text = pod_text(answer_about(explanation, weights))

    assert title in text
    n4 = next(terms for terms in explanation.scored.top if terms.node == "n4")
    assert attrgetter(field)(n4) > 0
    assert f"{attrgetter(field)(n4):.2f}" in text


@pytest.mark.parametrize("scoring", ["headroom", "energy"])
async def test_the_points_of_each_line_add_up_to_its_score(
    recorded: RecordedLog, scoring: str
) -> None:
    made = recorded.builder
    made.weights = Weights(scoring=scoring)
    await record_small_log(recorded)
    await made.facts(hardware("n4", gpus=8))
    await made.answer(ask("web"))
    async with recorded.reading() as (history, _):
        explanation = explain_pod(history, "web")
    attempt = answer_about(explanation, made.weights).attempt
    assert attempt is not None

    table = next(iter(score_table(attempt.scores, "n4")))
    assert isinstance(table, TextTable)
    first = table.head.index("score")

    assert len(table.rows) == len(attempt.scores) > 1
    assert sum(name.startswith("*") for name, *_ in table.rows) == 1
    for score, *parts in (row[first:-1] for row in table.rows):
        assert float(score) == pytest.approx(sum(map(float, parts)), abs=0.03)
