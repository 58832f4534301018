"""The vectorized filter and scoring equal the reference implementation to the last bit."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import gpu_kit
import reference_scoring
from joulie_bus.events import Placement
from joulie_extender.decide.context import DecisionContext
from joulie_extender.decide.decide import DecisionOptions, filter_decision
from joulie_extender.decide.scoring import Scores, score
from joulie_extender.protocol.candidates import candidates_of, rows_by_name
from joulie_projections.twin.columns import TwinColumns
from reference_scoring import Question, question

thorough = settings(deadline=None, max_examples=100)
placements: st.SearchStrategy[Placement] = st.sampled_from(["general", "eco-only"])
some_pods = st.builds(
    lambda pod, team, placement, exempt: replace(
        pod, team=team, placement=placement, exempt=exempt
    ),
    reference_scoring.pods | gpu_kit.PODS,
    st.sampled_from(["", "red", "blue"]),
    placements,
    st.sampled_from(["", "", "", "critical"]),
)
cluster_states = st.builds(
    question,
    *(
        reference_scoring.cluster_states,
        some_pods,
        reference_scoring.views,
        reference_scoring.any_weights,
        reference_scoring.buildings,
        reference_scoring.cards,
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

    one_by_one = [reference_scoring.score_of(asked, node) for node in asked.nodes]
    assert scores.score.tolist() == one_by_one
    highest = asked.weights.score_range
    assert scores.answer.tolist() == [
        reference_scoring.answer_of(value, highest) for value in one_by_one
    ]


@thorough
@given(cluster_states)
def test_every_term_is_that_of_the_plain_loop_to_the_last_bit(cluster_state: ClusterState) -> None:
    asked, twin_columns = cluster_state
    nodes, found = asked.nodes, scored(asked, twin_columns)
    there = [at for at, node in enumerate(nodes) if node.twin.at > 0]

    assert found["assumed_w"].tolist() == [
        reference_scoring.assumed_of(asked, each.twin) for each in nodes
    ]
    assert found["trend"].tolist() == [
        reference_scoring.trend_of(asked, each.twin) for each in nodes
    ]
    assert found.basis.tolist() == [reference_scoring.basis_of(asked, each.twin) for each in nodes]
    assert found.cluster is not None
    assert found.cluster.pressure == reference_scoring.pressure_of(asked)
    # What was never updated stands in no room.
    for at in there:
        assert found["marginal_w"].item(at) == reference_scoring.marginal_of(asked, nodes[at])
        assert found["cooling"].item(at) == reference_scoring.cooling_of(asked, nodes[at])
    if "packing" in found.more:
        assert found["packing"].tolist() == [
            reference_scoring.packing_of(asked, each) for each in nodes
        ]
    if "wishes" in found.more:
        assert found["wishes"].tolist() == [
            reference_scoring.wishes_of(asked, each) for each in nodes
        ]
    kept = found["cards_kept"].tolist() if "cards_kept" in found.more else [0.0] * len(nodes)
    assert kept == [reference_scoring.cards_kept_of(asked, each) for each in nodes]


@thorough
@given(cluster_states, st.lists(st.booleans(), min_size=7, max_size=7) | st.none())
def test_a_verdict_is_that_of_the_plain_loop(
    cluster_state: ClusterState, labels: list[bool] | None
) -> None:
    asked, twin_columns = cluster_state
    names = [*(node.name for node in asked.nodes), "a stranger"]
    rows, known = rows_by_name(twin_columns, names), [*asked.nodes, None]
    context = DecisionContext(twin_columns, 1, asked.age_ms, asked.now)
    sent = DecisionOptions(eco_labels=bytes(labels[: len(names)]) if labels else b"")

    found = filter_decision(
        asked.pod, candidates_of(names, rows), rows, context, asked.weights, sent
    )

    as_known = [
        each is not None and each.state.labels.get(reference_scoring.LABEL) == "eco"
        for each in known
    ]
    verdicts = [
        reference_scoring.verdict_of(asked, each, says_eco=eco)
        for each, eco in zip(known, labels or as_known, strict=False)
    ]
    assert list(found.verdicts) == verdicts
