"""The states that a user is shown are those that the guard, the policy and the fold know."""

import itertools

import pytest
from msgspec.structs import replace

from bus_kit import (
    asleep,
    completed,
    draining,
    eco,
    node_seen,
    performance,
    records,
    waking,
)
from joulie_bus.events import AnyEvent
from joulie_operator.planning.guard import Stage
from joulie_operator.planning.node_states import following_stages, node_states
from joulie_operator.planning.sleep import SLEEPING_POLICY
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.state.state_changes import Draft

OFF = replace(node_seen("n1"), ready=False)
SLEEP = asleep("n1")
STEPS: list[AnyEvent] = [
    performance("n1"),
    draining("n1"),
    completed("n1"),
    SLEEP,
    OFF,
    waking("n1"),
    node_seen("n1"),
]


def folded(*facts: AnyEvent) -> NodeState:
    cluster_state = ClusterState()
    draft = Draft(cluster_state)
    fold(draft, records(*facts), 0)
    draft.commit()
    return cluster_state.nodes["n1"]


def test_the_guard_decides_what_follows_each_stage() -> None:
    assert {stage: following_stages(stage) for stage in Stage} == {
        Stage.UNPLANNED: [Stage.PERFORMANCE, Stage.DRAINING, Stage.ECO],
        Stage.PERFORMANCE: [Stage.DRAINING, Stage.ECO],
        Stage.DRAINING: [Stage.PERFORMANCE, Stage.ECO],
        Stage.ECO: [Stage.PERFORMANCE],
    }


@pytest.mark.parametrize(("policy", "known"), [("static_partition", 4), (SLEEPING_POLICY, 6)])
def test_a_state_follows_another_only_if_it_is_announced(policy: str, known: int) -> None:
    steps = STEPS if policy == SLEEPING_POLICY else STEPS[: STEPS.index(SLEEP)]
    history = [
        node_states(folded(node_seen("n1"), *steps[:taken]), policy)
        for taken in range(len(steps) + 1)
    ]
    moves = itertools.pairwise(history)

    assert [(a, b) for a, b in moves if b.now not in (a.now, *a.following)] == []
    assert len({states.now for states in history}) == known


def test_nodes_sleep_only_under_the_policy_that_lets_them() -> None:
    node = folded(node_seen("n1"), eco("n1"))

    assert node_states(node, "static_partition").following == ["performance"]
    assert node_states(node, SLEEPING_POLICY).following == ["performance", "asleep"]
    assert "asleep" not in node_states(node, "static_partition").states


def test_a_draining_node_does_not_fall_asleep() -> None:
    node = folded(node_seen("n1"), draining("n1"))

    assert "asleep" not in node_states(node, SLEEPING_POLICY).following


def test_a_waking_node_returns_to_its_profile() -> None:
    node = folded(node_seen("n1"), eco("n1"), SLEEP, OFF, waking("n1"))

    assert node_states(node, SLEEPING_POLICY).following == ["eco"]
