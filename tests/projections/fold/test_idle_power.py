"""The power of a node without pods, by its readings."""

from typing import Any

import pytest
from msgspec.structs import replace

from bus_kit.clock import NOON
from joulie_bus.events import TelemetrySampled
from joulie_projections.fold.node_facts import sampled_power
from joulie_projections.state.state import ClusterState, NodeState
from joulie_projections.state.state_changes import Draft

SECOND = 1_000_000_000
EMPTY = NodeState(
    ordinal=0,
    at=NOON,
    present=True,
    ready=True,
    schedulable=True,
    profile="eco",
    class_at=NOON - 600 * SECOND,
)


def after(node: NodeState, *watts: float, late_ms: int = 0) -> int:
    state = ClusterState()
    state.nodes["n"] = node
    draft = Draft(state)
    for number, each in enumerate(watts):
        reading = TelemetrySampled(node="n", power_mw=round(each * 1000), late_ms=late_ms)
        sampled_power(draft, reading, NOON + number * SECOND)
    draft.commit()
    return state.nodes["n"].idle_mw


def test_a_reading_of_an_empty_node_is_its_idle_power() -> None:
    assert after(EMPTY, 350) == 350_000
    assert after(replace(EMPTY, pods=2, daemon_pods=2), 350) == 350_000


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"pods": 1}, id="a pod runs"),
        pytest.param({"emptied_at": NOON - 59 * SECOND}, id="a pod has just ended"),
        pytest.param({"power_at": NOON - 59 * SECOND}, id="it has just woken up"),
        pytest.param({"power_state": "asleep"}, id="it sleeps"),
        pytest.param({"power_state": "waking"}, id="it boots"),
        pytest.param({"ready": False}, id="it is not ready"),
        pytest.param({"schedulable": False}, id="it is cordoned"),
        pytest.param({"class_at": 0}, id="its pods may not be known before its first plan"),
    ],
)
def test_other_readings_are_none(fields: dict[str, Any]) -> None:
    assert after(replace(EMPTY, **fields), 350) == 0
    assert after(replace(EMPTY, idle_mw=300_000, **fields), 350) == 300_000


def test_a_late_reading_counts_for_the_time_at_which_it_was_made() -> None:
    emptied = replace(EMPTY, emptied_at=NOON - 90 * SECOND)

    assert after(emptied, 350) == 350_000
    assert after(emptied, 600, late_ms=60_000) == 0


def test_one_reading_changes_it_by_an_eighth() -> None:
    assert after(EMPTY, 400, 480) == 410_000
    assert after(EMPTY, 400, *[360] * 60) == pytest.approx(360_000, abs=100)
