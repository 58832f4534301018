"""The plan that the operator would make next, and the order in which nodes save energy."""

from typing import Any

import pytest
from msgspec.structs import replace

from bus_kit import NOON, SECOND, hardware
from joulie_audit.questions.next_plan import NextPlan, next_plan
from joulie_bus.events import PlanMade, SleepOrdered
from joulie_operator.planning.reconcile import PlanBasis, plan
from joulie_operator.planning.rules import Rules
from joulie_operator.plugins import load_policy
from joulie_projections.state.state import ClusterState, NodeState

USUAL = Rules()
SLEEPS = Rules(
    policy="consolidate_and_sleep",
    queue_hp_base_frac=0.0,
    queue_hp_min=0,
    policy_numbers="reserve=0,max_share=1,max_step=1",
)


def node(cores: int = 96, **fields: Any) -> NodeState:
    """An awake node of class performance that has been empty for a minute."""
    usual = NodeState(
        ordinal=0,
        at=NOON,
        present=True,
        ready=True,
        schedulable=True,
        labels={"joulie.io/managed": "true"},
        hardware=hardware("n", cores=cores),
        cpu_milli=1000 * cores,
        profile="performance",
        cpu_cap_pct=100,
        class_at=NOON - 60 * SECOND,
        emptied_at=NOON - 60 * SECOND,
    )
    return replace(usual, **fields)


def asked(nodes: dict[str, NodeState], rules: Rules = USUAL, later_s: int = 0) -> NextPlan:
    """After a plan with these settings, which was made at noon."""
    state = ClusterState()
    state.nodes.update(nodes)
    newest = made_at_noon(state, rules)
    return next_plan(newest, state, load_policy(rules.policy), 9, NOON + later_s * SECOND)


def made_at_noon(state: ClusterState, rules: Rules) -> PlanMade:
    return plan(state, load_policy(rules.policy), rules, PlanBasis(7, NOON)).made


def sleepers(found: NextPlan) -> list[str]:
    return [event.node for event in found.plan.events if isinstance(event, SleepOrdered)]


def test_the_least_dense_performance_node_becomes_eco_first() -> None:
    nodes = {"small": node(32), "large": node(128), "middle": node(64)}

    assert asked(nodes).least_dense_first == ["small", "middle", "large"]


def test_this_is_the_order_in_which_plans_with_a_smaller_share_take_nodes() -> None:
    nodes = {f"n{i}": node(32 + 16 * i) for i in range(5)}
    order = asked(nodes).least_dense_first

    for left in range(5):
        found = asked(nodes, Rules(static_hp_frac=left / 5))
        saving = {event.node for event in found.plan.events}
        assert saving == set(order[: 5 - left])


def test_nodes_that_save_already_or_drain_are_not_listed_again() -> None:
    nodes = {"a": node(profile="eco"), "b": node(draining=True, performance_pods=3), "c": node()}

    found = asked(nodes)

    assert found.least_dense_first == ["c"]
    assert found.draining == {"b": 3}


@pytest.mark.parametrize(("later_s", "falls_asleep"), [(0, False), (300, False), (600, True)])
def test_a_later_time_shows_the_nodes_that_will_have_been_empty_for_long_enough(
    later_s: int, falls_asleep: bool
) -> None:
    """The default `sleep_after_s` is 600 s, and the nodes are empty for 60 s at noon."""
    nodes = {name: node(profile="eco", cpu_cap_pct=60) for name in "ab"}

    found = asked(nodes, SLEEPS, later_s)

    assert sleepers(found) == (["a"] if falls_asleep else [])


def test_empty_nodes_are_listed_in_the_order_in_which_they_fall_asleep() -> None:
    nodes = {
        "new": node(profile="eco", emptied_at=NOON - SECOND),
        "old": node(profile="eco", emptied_at=NOON - 90 * SECOND),
        "used": node(profile="eco", pods=1),
    }

    assert list(asked(nodes, SLEEPS).empty_in_order) == ["old", "new"]
    assert asked(nodes).empty_in_order == {}
