"""What is computed in columns equals what a plain loop computes, to the last bit, in any world."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import gpu_kit
import plain
from joulie_bus.events import Placement
from joulie_extender.decide.decide import Sent, filter_decision
from joulie_extender.decide.scoring import Scores, score
from joulie_extender.decide.snapshot import Moment
from joulie_extender.protocol.candidates import candidates_of, rows_by_name
from joulie_projections.twin.columns import TwinColumns
from plain import Question, question

thorough = settings(deadline=None, max_examples=100)
placements: st.SearchStrategy[Placement] = st.sampled_from(["general", "eco-only"])
some_pods = st.builds(
    lambda pod, team, placement, exempt: replace(
        pod, team=team, placement=placement, exempt=exempt
    ),
    plain.pods | gpu_kit.PODS,
    st.sampled_from(["", "red", "blue"]),
    placements,
    st.sampled_from(["", "", "", "critical"]),
)
cluster_states = st.builds(
    question,
    *(
        plain.cluster_states,
        some_pods,
        plain.views,
        plain.any_weights,
        plain.buildings,
        plain.cards,
    ),
)
ClusterState = tuple[Question, TwinColumns]


def scored(asked: Question, twin_columns: TwinColumns) -> Scores:
    rows = rows_by_name(twin_columns, [node.name for node in asked.nodes])
    return score(asked.pod, twin_columns, rows, asked.now, asked.age_ms, asked.weights)


@thorough
@given(cluster_states)
def test_a_score_is_that_of_the_plain_loop_to_the_last_bit(cluster_state: ClusterState) -> None:
    asked, twin_columns = cluster_state

    scores = scored(asked, twin_columns)

    one_by_one = [plain.score_of(asked, node) for node in asked.nodes]
    assert scores.score.tolist() == one_by_one
    highest = asked.weights.score_range
    assert scores.answer.tolist() == [plain.answer_of(value, highest) for value in one_by_one]


@thorough
@given(cluster_states)
def test_every_term_is_that_of_the_plain_loop_to_the_last_bit(cluster_state: ClusterState) -> None:
    asked, twin_columns = cluster_state
    nodes, found = asked.nodes, scored(asked, twin_columns)
    there = [at for at, node in enumerate(nodes) if node.twin.at > 0]

    assert found.assumed_w.tolist() == [plain.assumed_of(asked, each.twin) for each in nodes]
    assert found.trend.tolist() == [plain.trend_of(asked, each.twin) for each in nodes]
    assert found.basis.tolist() == [plain.basis_of(asked, each.twin) for each in nodes]
    assert found.cluster.pressure == plain.pressure_of(asked)
    # What was never updated stands in no room.
    for at in there:
        assert found.marginal_w.item(at) == plain.marginal_of(asked, nodes[at])
        assert found.cooling.item(at) == plain.cooling_of(asked, nodes[at])
    if found.packing is not None:
        assert found.packing.tolist() == [plain.packing_of(asked, each) for each in nodes]
    if found.wishes is not None:
        assert found.wishes.tolist() == [plain.wishes_of(asked, each) for each in nodes]


@thorough
@given(cluster_states, st.lists(st.booleans(), min_size=7, max_size=7) | st.none())
def test_a_verdict_is_that_of_the_plain_loop(
    cluster_state: ClusterState, labels: list[bool] | None
) -> None:
    asked, twin_columns = cluster_state
    names = [*(node.name for node in asked.nodes), "a stranger"]
    rows, known = rows_by_name(twin_columns, names), [*asked.nodes, None]
    moment = Moment(twin_columns, 1, asked.age_ms, asked.now)
    sent = Sent(eco_labels=bytes(labels[: len(names)]) if labels else b"")

    found = filter_decision(
        asked.pod, candidates_of(names, rows), rows, moment, asked.weights, sent
    )

    as_known = [each is not None and each.state.labels.get(plain.LABEL) == "eco" for each in known]
    verdicts = [
        plain.verdict_of(asked, each, says_eco=eco)
        for each, eco in zip(known, labels or as_known, strict=False)
    ]
    assert list(found.verdicts) == verdicts
