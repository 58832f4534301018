"""What keeps a node awake, by the facts."""

from typing import Any

import pytest
from msgspec.structs import replace

from bus_kit import asleep, bound, hardware, node_seen, noon, performance, plan_made, records
from joulie_answers.views.awake import SOON, keeps_awake
from joulie_answers.views.cluster_view import pods_on
from joulie_operator.planning.sleep import LAST, RESERVE, SLEEPING_POLICY
from joulie_projections.fold.sequence import fold
from joulie_projections.state.state import ClusterState
from joulie_projections.state.state_changes import Draft

SLEEPS = replace(plan_made("p1"), policy=SLEEPING_POLICY, settings={"POLICY_TYPE": SLEEPING_POLICY})
NODES = [f"n{number}" for number in range(1, 5)]


def state_of(*facts: Any, plan: Any = SLEEPS) -> ClusterState:
    found = ClusterState()
    draft = Draft(found)
    known = [fact for name in NODES for fact in (node_seen(name), hardware(name))]
    fold(draft, records(*known, *map(performance, NODES), plan, *facts, step_s=0.0), 0)
    draft.commit()
    return found


def why(state: ClusterState, name: str = "n1", after_s: float = 3600.0) -> str:
    return keeps_awake(name, state, pods_on(state, name), noon(after_s))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ([bound("a", "n1")], "one pod runs here"),
        ([bound("a", "n1"), bound("b", "n1")], "2 pods run here"),
        (
            [bound("joulie-projector-0", "n1")],
            "one pod runs here, 1 of them of Joulie itself: team/joulie-projector-0",
        ),
        ([asleep("n1")], ""),
        ([replace(node_seen("n1"), schedulable=False)], "it is cordoned"),
        ([replace(node_seen("n1"), ready=False)], "it is not ready"),
    ],
    ids=str,
)
def test_the_reason_is_that_of_the_facts(facts: list[Any], reason: str) -> None:
    assert why(state_of(*facts)) == reason


def test_an_empty_node_sleeps_only_after_a_while() -> None:
    found = why(state_of(), after_s=40.0)

    assert found == "it is empty for 40.0 s, and sleeps after 10 min"


def test_the_last_empty_nodes_of_a_pool_are_its_reserve() -> None:
    found = state_of()

    assert [why(found, name) for name in NODES] == [SOON, SOON, SOON, RESERVE]


def test_the_last_node_of_its_hardware_stays_awake() -> None:
    assert why(state_of(*map(asleep, NODES[1:]))) == LAST


def test_where_the_policy_lets_no_node_sleep_it_is_the_reason() -> None:
    found = state_of(plan=plan_made("p1"))

    assert why(found) == f"the policy {plan_made('p1').policy} lets no node sleep"
    assert why(state_of(plan=hardware("n1"))) == ""  # before the first plan
