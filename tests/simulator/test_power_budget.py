"""A power target of a feed, with the real plans, orders and writers of caps, on simulated nodes.

`benchmarks/power_budget.py` has 5,000 nodes and three hours.
"""

from pathlib import Path

import pytest

from budget_drill import Drill, Report, drill
from joulie_bus.events import CapsSet
from joulie_operator.planning.power.budget import shares_in
from joulie_operator.planning.rules import Rules

pytestmark = pytest.mark.long
NODES, HELD_S, LOST_S = 100, 300, 180
UNCAPPED = Rules(static_hp_frac=0.1, cpu_eco_pct=100, gpu_eco_pct=100)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    made = Drill(NODES, UNCAPPED, tmp_path_factory.mktemp("limits"))
    return drill(made, 0.7, HELD_S, LOST_S)


def test_a_feed_draws_a_third_less_within_thirty_seconds(report: Report) -> None:
    assert report.met_s is not None


def test_the_target_is_held_within_a_percent(report: Report) -> None:
    assert report.held_most <= 1.01
    assert report.held_mean >= 0.95


def test_the_feed_stays_below_its_target_when_the_broker_is_cut_off(report: Report) -> None:
    """All jobs that begin meanwhile are as busy as they can be."""
    assert report.safe_most <= 1.0


def test_the_power_is_given_back_when_the_target_ends(report: Report) -> None:
    assert report.after > 0.97


def test_no_node_with_a_performance_pod_is_capped(report: Report) -> None:
    assert report.slowed == 0


def test_cards_of_class_standard_beside_those_of_performance_take_their_part(
    tmp_path: Path,
) -> None:
    """Three tenths of the nodes are of class performance, and each runs both classes. A broker that
    is cut off leaves safe caps of the same cards behind."""
    settings = UNCAPPED._replace(static_hp_frac=0.3)
    found = drill(Drill(40, settings, tmp_path, mixed=True), 0.7, 60, 120, 5)
    assert found.held_most <= 1.01
    assert found.slowed == 0
    assert found.capped_cards > 20
    assert found.safe_most <= 1.0


def test_what_no_cap_can_save_is_told(tmp_path: Path) -> None:
    """By default half of the nodes are for class performance, and these have most of the cards."""
    made = Drill(40, Rules(), tmp_path)
    list(made.run(10))
    made.fill()
    before = [*made.run(60)][-1]

    made.target(0.5 * before, 600)
    list(made.run(60))

    assert "caps cannot meet the target of feed a" in made.plans[-1].made.because
    assert made.slowed == 0
    performing = {name for name, node in made.state.nodes.items() if node.performance_pods}
    assert len(performing) == 20
    lowered = {
        event.node
        for plan in made.plans
        for event in plan.events
        if isinstance(event, CapsSet) and event.cpu_cap_pct and event.cpu_cap_pct < 60
    }
    assert not lowered & performing
    assert {share.rack for share in shares_in(made.plans[-1].made.inputs)} == {"r0", "r1"}
