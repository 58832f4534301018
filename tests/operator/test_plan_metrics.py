"""The metrics of a plan: the power under each target, and nodes that refuse their caps."""

from collections.abc import Generator

import pytest
from prometheus_client import Gauge

from bus_kit import NOON, SECOND, hardware
from joulie_bus.runtime import metrics
from joulie_bus.runtime.settings import Source
from joulie_operator import plan_metrics
from joulie_operator.plan_metrics import MOST_FEEDS
from joulie_operator.planning.power_target import FEED_LABEL
from joulie_operator.planning.reconcile import Plan, PlanBasis, plan
from joulie_operator.plugins import load_policy
from joulie_operator.settings import OperatorSettings
from joulie_projections.state.state import ClusterState, NodeState, Sample

TARGETS = "power_target_w=150,power_target_w.left=40"


@pytest.fixture(autouse=True)
def cleared() -> Generator[None]:
    yield
    plan_metrics.clear()


def cluster(*refusing: str) -> ClusterState:
    """Two nodes of 100 W each, one of them on a feed of its own."""
    state = ClusterState()
    for ordinal, name in enumerate(("n1", "n2")):
        state.nodes[name] = NodeState(
            ordinal=ordinal,
            at=NOON,
            present=True,
            labels={FEED_LABEL: "left"} if name == "n1" else {},
            hardware=hardware(name, cores=10, watts=200),
            samples=(Sample(NOON, 100_000),),
            refused_caps="not writable" if name in refusing else "",
        )
    return state


def planned(state: ClusterState, numbers: str = "") -> Plan:
    settings = Source.of(POLICY_NUMBERS=numbers).load(OperatorSettings)
    rules = settings.rules()
    made = plan(state, load_policy(settings.policy), rules, PlanBasis(1, NOON + SECOND, True))
    plan_metrics.show(made, state)
    return made


def watts(gauge: Gauge) -> dict[str, float]:
    [found] = gauge.collect()
    return {each.labels["feed"]: each.value for each in found.samples}


def test_the_power_under_each_target_is_shown_by_feed() -> None:
    planned(cluster(), TARGETS)

    assert watts(metrics.POWER_TARGET) == {"": 150, "left": 40}
    assert watts(metrics.POWER_DRAWN) == {"": 200, "left": 100}


def test_no_more_feeds_are_shown_than_prometheus_should_keep() -> None:
    planned(cluster(), ",".join(f"power_target_w.f{number}=9" for number in range(MOST_FEEDS + 9)))

    assert len(watts(metrics.POWER_TARGET)) == len(watts(metrics.POWER_DRAWN)) == MOST_FEEDS


def test_a_target_that_is_over_is_shown_no_more() -> None:
    planned(cluster(), TARGETS)
    planned(cluster())

    assert watts(metrics.POWER_TARGET) == watts(metrics.POWER_DRAWN) == {}


def test_nodes_that_refuse_their_caps_are_counted() -> None:
    planned(cluster("n2"))

    assert metrics.NODES_REFUSING_CAPS._value.get() == 1
