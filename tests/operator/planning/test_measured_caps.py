"""Eco nodes are capped only where a measurement says that caps save energy."""

from typing import Any

import pytest
from msgspec.structs import replace

from bus_kit import NOON, SECOND
from joulie_bus.events import CapsMeasured, CapsSet, WorkloadClass
from joulie_operator.planning.policy_numbers import wrong_numbers
from joulie_operator.planning.reconcile import Plan, PlanBasis, plan, recompute
from joulie_operator.planning.rules import Rules
from joulie_operator.plugins import load_policy
from joulie_projections.state.state import CLUSTER, CapEffect, ClusterRow, ClusterState, NodeState

RULES = Rules(static_hp_frac=0.0, policy_numbers="caps_where_measured=1")
DAY = 86_400 * SECOND


def effect(high: int, workload: WorkloadClass = "standard", days: int = 1) -> CapEffect:
    measured = CapsMeasured(
        workload=workload,
        low_permille=-109,
        mid_permille=-71,
        high_permille=high,
        capped_pods=412,
        other_pods=388,
    )
    return CapEffect(NOON - days * DAY, measured)


def planned(*effects: CapEffect, rules: Rules = RULES, nodes: int = 1) -> Plan:
    state = ClusterState()
    found: dict[str, CapEffect] = {each.measured.workload: each for each in effects}
    state.cluster[CLUSTER] = ClusterRow(cap_effects=found)
    for number in range(nodes):
        state.nodes[f"n{number}"] = eco(ordinal=number)
    policy = load_policy(rules.policy)
    made = plan(state, policy, rules, PlanBasis(7, NOON))
    assert recompute(made.made, state, policy) == made
    return made


def eco(ordinal: int = 0, **fields: Any) -> NodeState:
    node = NodeState(
        ordinal=ordinal,
        at=NOON,
        present=True,
        ready=True,
        schedulable=True,
        labels={"joulie.io/managed": "true"},
        cpu_milli=96_000,
        profile="eco",
        class_at=1,
    )
    return replace(node, **fields)


def caps(made: Plan) -> list[int | None]:
    return [event.cpu_cap_pct for event in made.events if isinstance(event, CapsSet)]


def test_without_a_measurement_eco_nodes_have_no_caps() -> None:
    made = planned()

    assert caps(made) == [100]
    assert "eco nodes are not capped: it is not measured" in made.made.because


def test_a_measured_saving_caps_eco_nodes_and_the_plan_says_how_large_it_is() -> None:
    made = planned(effect(high=-32))

    assert caps(made) == [60]
    assert (
        "eco nodes are capped: capped pods of class standard took -7.1 % energy "
        "(-10.9 to -3.2 %, 412 and 388 pods)"
    ) in made.made.because
    assert made.made.inputs["caps_change_permille"] == -71


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(effect(high=0), id="the interval reaches 0"),
        pytest.param(effect(high=-32, workload="performance"), id="another class"),
        pytest.param(effect(high=-32, days=91), id="too old"),
    ],
)
def test_what_is_not_known_to_save_caps_no_node(known: CapEffect) -> None:
    made = planned(known)

    assert caps(made) == [100]
    assert "eco nodes are not capped" in made.made.because


def test_without_the_number_the_settings_alone_decide() -> None:
    made = planned(rules=RULES._replace(policy_numbers=""))

    assert caps(made) == [60]
    assert "capped" not in made.made.because


def test_a_trial_caps_a_share_of_the_eco_nodes_so_that_a_saving_can_be_measured() -> None:
    numbers = "caps_where_measured=1,caps_trial=0.3"
    found = caps(planned(rules=RULES._replace(policy_numbers=numbers), nodes=200))

    assert 40 <= found.count(60) <= 80
    assert found.count(60) + found.count(100) == 200


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"caps_where_measured": 2.0}, "caps_where_measured=2 is not 0 for no, or 1 for yes"),
        ({"caps_trial": 1.5}, "caps_trial=1.5 is not a share from 0 to 1"),
    ],
)
def test_wrong_numbers_are_named(given: dict[str, float], error: str) -> None:
    assert wrong_numbers(given, others=False) == [error]
