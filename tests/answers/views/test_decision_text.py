"""Entries of the decision log as sentences."""

import pytest

from joulie_answers.views.decision_text import DescribedEntry, EntryRow, describe, explain
from joulie_bus.events import DecisionEntry
from joulie_bus.testing import NOON, ask, producer
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_filter, decide_prioritize
from joulie_projections.state.completeness import NEVER_MS
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import RowNames


def described(entry: int, event: DecisionEntry) -> DescribedEntry:
    row = EntryRow(entry, f"e:{entry}", "team/web", "web", NOON, producer().stamp(event).data)
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
    lines = explain(pod, "n1", [scored, filtered])
    assert lines[1] == "All 2 nodes pass the filter (entry 1, without a view of the cluster)."
    assert lines[2].endswith(", without a view of the cluster (entry 2).")


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        ("n1", "It runs on n1."),
        ("n2", "It runs on n2: kube-scheduler chooses among level nodes."),
        ("n9", "kube-scheduler put it on n9: it combines this score with other scores."),
    ],
)
def test_an_explanation_says_why_a_pod_is_not_on_the_best_node(node: str, sentence: str) -> None:
    empty = DecisionContext(TwinColumns.empty(), 0, NEVER_MS, NOON)
    scored = described(2, decide_prioritize(ask("web"), ["n1", "n2"], empty, Weights()))

    assert scored.brief.winner == "n1"
    assert explain(None, node, [scored])[-1] == sentence
