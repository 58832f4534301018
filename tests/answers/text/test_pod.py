"""The story of a pod, as the command prints it and as the page shows it."""

import pytest
from msgspec.structs import replace

from bus_kit import NOON, SECOND, ask, hardware
from joulie_answers.readers.attempt_values import Beside, attempt_of, outcome_brief
from joulie_answers.readers.attempts import NamedAttempt
from joulie_answers.schema.responses import PodBrief, PodDetail
from joulie_answers.text.pod import pod_text, sentences
from joulie_answers.views.cluster_view import pod_brief
from joulie_audit.questions.explain import Explanation, outcome_of
from joulie_bus.events import PodAsk
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_prioritize
from joulie_projections.state.state import NodeState, PodState, Sample
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.twin.row_names import RowName, RowNames

DRAWN_W = {"n1": 100, "n2": 100, "n3": 100, "n4": 300}  # of 600
NAMES = RowNames(0, 1, [RowName(0, row, name) for row, name in enumerate(DRAWN_W)])
NO_POD = PodDetail(
    position=1,
    at_ms=0,
    age_ms=0,
    behind_ms=0,
    pod=None,
    decisions=[],
    explanation=[],
    attempt=None,
    outcome=None,
    group=None,
)


def about(node: str, pod: PodAsk | None = None) -> PodDetail:
    """A pod that was scored on four nodes, of which three are equal, and that is on `node`."""
    asked = pod or ask("web")
    nodes = {
        name: NodeState(
            ordinal=row,
            at=NOON,
            hardware=hardware(name, watts=600),
            samples=(Sample(NOON - SECOND, watts * 1000),),
        )
        for row, (name, watts) in enumerate(DRAWN_W.items())
    }
    context = DecisionContext(TwinColumns.of(nodes, 0), 1, 0, NOON)
    scored = decide_prioritize(asked, list(nodes), context, Weights())
    found = Explanation(
        pod=asked,
        attempts=1,
        decided_at=NOON,
        view=1,
        view_age_ms=0,
        behind_ms=0,
        view_text="position 1",
        settings=scored.basis.settings,
        candidates=4,
        filtered=None,
        scored=scored,
        entries=[2],
        rejections=[],
        outcome=outcome_of(scored, node, NAMES) if node else None,
    )
    beside = Beside(answers=NamedAttempt(found, NAMES).answers(), placed_on=node)
    return replace(
        NO_POD,
        attempt=attempt_of(found, Weights(), beside),
        outcome=outcome_brief(found.outcome),
    )


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_a_pod_on_a_node_that_ties_is_on_one_of_the_best(node: str) -> None:
    lines = sentences(about(node))

    assert any("of 4 candidates; 3 tie as the best" in line for line in lines)
    assert lines[-1].startswith(f"outcome: bound to {node}*, one of 3 nodes that tie as our best")
    assert lines[-1].endswith("kube-scheduler chooses among them")


def test_a_pod_elsewhere_has_the_rank_of_its_node() -> None:
    last = sentences(about("n4"))[-1]

    assert last.startswith("outcome: bound to n4*, our number 4 with ")
    assert last.endswith("kube-scheduler adds its own scores to ours")


def test_the_node_where_the_pod_is_has_a_line_even_if_its_terms_are_unknown() -> None:
    found = about("n4")
    assert found.attempt is not None
    without = [each for each in found.attempt.scores if each.node != "n4"]
    answered = replace(found.attempt.scores[-1], node="n4", answer=38, terms=None, loss=None)

    text = pod_text(replace(found, attempt=replace(found.attempt, scores=[*without, answered])))

    (line,) = (each for each in text.splitlines() if each.startswith("  *n4"))
    cells = line.split()
    assert (cells[:3], cells[-1]) == (["*n4", "|", "38"], "answered")
    assert "\n  answered     the log has only the terms of the best" in text


def brief(cores: float, *, performance: bool = False) -> PodBrief:
    return pod_brief(PodState(pod=ask("web", cores=cores, performance=performance), node="n1"))


@pytest.mark.parametrize(
    ("pod", "cores"),
    [
        (brief(2), "2 cores"),
        (brief(0), "no cores, counted as 0.25"),
        (brief(0, performance=True), "no cores, counted as 0.5"),
    ],
)
def test_a_request_of_no_cores_has_the_cores_that_are_counted(pod: PodBrief, cores: str) -> None:
    assert f"requests: {cores}" in sentences(replace(NO_POD, pod=pod))


def test_a_pod_without_a_decision_has_a_story_too() -> None:
    found = replace(NO_POD, pod=brief(1))

    assert sentences(found)[-2:] == [
        "decisions: No decision about it is in the log.",
        "outcome: runs on n1",
    ]
    assert pod_text(found).splitlines()[0] == "team/web"


def test_the_command_prints_each_sentence_of_the_page() -> None:
    for found in (about("n1"), about("n4"), about(""), about("n1", ask("web", cores=0))):
        text = pod_text(found)
        for line in sentences(found):
            label, _, words = line.partition(": ")
            assert f"  {label:<11}{words}" in text.splitlines()
