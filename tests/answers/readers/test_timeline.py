"""The life of a pod: each attempt with its reason and its table, oldest first, up to its end."""

from msgspec.structs import replace

from bus_kit import NOON, SECOND, ask, hardware, producer
from joulie_answers.readers.timeline import MOST_TABLES, Known, timeline_of
from joulie_answers.schema.responses import Outcome
from joulie_answers.text.score_table import score_table
from joulie_answers.text.tables import TextTable
from joulie_answers.views.cluster_view import pod_brief
from joulie_answers.views.decision_text import (
    DescribedEntry,
    EntryRow,
    describe,
    scored_candidates,
)
from joulie_bus.events import DecisionEntry, OutcomeSeen, PrioritizeDecided
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_projections.state.state import NodeState, PodState, Sample
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import RowName, RowNames

NODES = ("n1", "n2")
NAMES = RowNames(0, 1, [RowName(0, row, name) for row, name in enumerate(NODES)])
WEIGHTS = Weights(scoring="energy")
STATES = {
    name: NodeState(
        ordinal=row,
        at=NOON,
        cpu_milli=96_000,
        hardware=hardware(name, watts=600),
        samples=(Sample(NOON - SECOND, 100_000 * (1 + row)),),
    )
    for row, name in enumerate(NODES)
}
CONTEXT = DecisionContext(TwinColumns.of(STATES, 0), 1, 0, NOON)
PASSED = decide_filter(ask("web"), NODES, CONTEXT, WEIGHTS)
SCORED = decide_prioritize(ask("web"), list(NODES), CONTEXT, WEIGHTS)
REFUSED = replace(PASSED, verdicts=bytes([1, 1]), reason="2 nodes: no room")
PLACED = OutcomeSeen(pod_uid="web", namespace="team", name="web", node="n1", rank=1)
BOUND = PodState(pod=ask("web"), node="n1", bound_at=NOON)


def entries(*events: DecisionEntry) -> list[DescribedEntry]:
    """Newest first, one a second."""
    weights = {SCORED.basis.settings: WEIGHTS}
    rows = [
        EntryRow(at, f"e:{at}", "team/web", "web", NOON + at * SECOND, producer().stamp(each).data)
        for at, each in enumerate(events, 1)
    ]
    return [describe(row, NAMES, weights) for row in rows][::-1]


def known(pod: PodState | None = BOUND) -> Known:
    outcome = Outcome(node="n1", rank=1, score=90, source="the log")
    return Known(pod_brief(pod) if pod else None, outcome, {SCORED.basis.settings: WEIGHTS})


def test_a_pod_that_was_refused_first_has_two_attempts_and_an_outcome() -> None:
    found = timeline_of(entries(REFUSED, PASSED, SCORED, PLACED), known())

    assert [(each.kind, each.entries) for each in found] == [
        ("attempt", [1]),
        ("attempt", [2, 3]),
        ("outcome", [4]),
    ]
    refused, placed, last = found
    assert refused.text == ("Attempt 1 of 2: team/web is refused on all 2 nodes: 2 nodes: no room.")
    assert placed.text.startswith("Attempt 2 of 2: For team/web, all 2 nodes pass. n1 scores ")
    assert last.text == "team/web runs on n1, ranked 1."
    assert (refused.table, refused.at_ms) == (None, (NOON + SECOND) // 10**6)


def test_the_table_of_an_attempt_is_that_of_the_command_with_watts_before_points() -> None:
    (_, moment) = timeline_of(entries(PASSED, SCORED, PLACED), known())[:2]
    (attempt, *_) = timeline_of(entries(PASSED, SCORED, PLACED), known())
    printed = next(iter(score_table(scored_candidates(SCORED, WEIGHTS), "n1")))

    assert moment.kind == "outcome"
    assert isinstance(printed, TextTable)
    assert attempt.table is not None
    assert attempt.table.head == [*printed.head]
    assert attempt.table.rows == [[*row] for row in printed.rows]
    edge = attempt.table.head.index("|")
    assert 0 < edge < attempt.table.head.index("score")
    assert attempt.table.rows[0][0] == "*n1"  # where it is


def test_the_end_of_a_pod_has_no_time_where_the_log_has_none() -> None:
    finished = known(PodState(pod=ask("web"), node="n1", bound_at=NOON, finished=True))
    waiting = known(PodState(pod=ask("web")))
    log = entries(PASSED, SCORED)

    assert [(each.kind, each.at_ms) for each in timeline_of(log, finished)[1:]] == [
        ("bound", NOON // 10**6),
        ("finished", None),
    ]
    assert [each.text for each in timeline_of(log, waiting)[1:]] == ["team/web waits for a node."]
    assert [each.kind for each in timeline_of(log, known(None))[1:]] == ["deleted"]


def test_only_the_newest_attempts_have_tables() -> None:
    scored: list[DecisionEntry] = [PASSED, SCORED] * (MOST_TABLES + 2)
    tables = [each.table is not None for each in timeline_of(entries(*scored), known())]

    assert tables == [False, False, *[True] * MOST_TABLES, False]
    assert isinstance(SCORED, PrioritizeDecided)
