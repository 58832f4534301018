"""Readings that were kept during an outage never take the power of a node back in time."""

from hypothesis import given
from hypothesis import strategies as st

from bus_kit.clock import NOON
from joulie_bus.events import TelemetrySampled
from joulie_projections.fold.node_facts import sampled_power
from joulie_projections.state.state import ClusterState, NodeState, Sample
from joulie_projections.state.state_changes import Draft

NS = 1_000_000_000


def folded(*readings: tuple[int, TelemetrySampled]) -> NodeState:
    """Each with the seconds after noon at which the broker stored it."""
    state = ClusterState()
    for at_s, fact in readings:
        draft = Draft(state)
        sampled_power(draft, fact, NOON + at_s * NS)
        draft.commit()
    return state.nodes["n1"]


def reading(watts: int, late_s: int = 0) -> TelemetrySampled:
    return TelemetrySampled(node="n1", power_mw=watts * 1000, late_ms=late_s * 1000)


def test_a_late_reading_has_the_time_at_which_it_was_made() -> None:
    node = folded((0, reading(100)), (60, reading(200, late_s=40)))
    assert node.samples[-1] == Sample(NOON + 20 * NS, 200_000)


def test_a_late_reading_after_a_newer_one_changes_nothing() -> None:
    newer = folded((0, reading(100)), (60, reading(300)))
    assert folded((0, reading(100)), (60, reading(300)), (61, reading(200, late_s=40))) == newer


STEPS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 900), st.sampled_from([0, 0, 5, 70, 400])),
    min_size=1,
    max_size=40,
)


@given(STEPS)
def test_the_readings_of_a_node_stay_in_the_order_of_their_times(
    steps: list[tuple[int, int, int]],
) -> None:
    at_s, stored = 0, list[tuple[int, TelemetrySampled]]()
    for step_s, watts, late_s in steps:
        at_s += step_s
        stored.append((at_s, reading(watts, late_s)))
        times = [sample.at for sample in folded(*stored).samples]
        assert times == sorted(times)
