"""Readings that are folded for many nodes at once leave what they leave of each."""

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import NOON, SECOND
from joulie_bus.events import TelemetrySampled
from joulie_projections.fold.newest_readings import NewestReadings, NodeReadings
from joulie_projections.fold.node_facts import with_reading
from joulie_projections.state.state import NodeState

NODES = st.builds(
    NodeState,
    ordinal=st.just(0),
    at=st.just(NOON),
    ready=st.just(True),
    schedulable=st.sampled_from([True, True, False]),
    pods=st.sampled_from([0, 0, 1]),
    daemon_pods=st.sampled_from([0, 0, 1]),
    class_at=st.sampled_from([0, NOON, NOON - 100 * SECOND]),
    idle_mw=st.sampled_from([0, 90_000, 90_007]),
)


class Turn(NamedTuple):
    """A reading of each node."""

    after_ms: int
    late_ms: list[int]
    power_mw: list[int]
    source: str
    provider: str


TURNS = st.builds(
    Turn,
    st.sampled_from([0, 1, 3_000, 9_999, 10_000, 10_000, 10_001, 61_000, 310_000, -4_000]),
    st.lists(st.sampled_from([0, 0, 1, 10_000, 50_000]), min_size=3, max_size=3),
    st.lists(st.integers(0, 900_000) | st.just(10**12), min_size=3, max_size=3),
    st.sampled_from(["kepler", "utilization"]),
    st.sampled_from(["", "agent"]),
)


def in_arrays(nodes: list[NodeState], turns: list[Turn]) -> list[NodeState]:
    newest, at = NewestReadings(), NOON
    newest.grow(len(nodes))
    for row, node in enumerate(nodes):
        newest.load(row, node)
    rows = np.arange(len(nodes))
    for turn in turns:
        at += turn.after_ms * 1_000_000
        same = (at, newest.number_of(turn.source), newest.number_of(turn.provider))
        time, source, provider = (np.full(len(nodes), each, np.int64) for each in same)
        late_ms, power_mw = np.array(turn.late_ms), np.array(turn.power_mw)
        newest.fold(NodeReadings(rows, time, late_ms, power_mw, source, provider))
    return [newest.node_after(row, node) for row, node in enumerate(nodes)]


def one_by_one(number: int, node: NodeState, turns: list[Turn]) -> NodeState:
    at = NOON
    for turn in turns:
        at += turn.after_ms * 1_000_000
        sampled = TelemetrySampled(
            node="n",
            power_mw=turn.power_mw[number],
            late_ms=turn.late_ms[number],
            source=turn.source,  # type: ignore[arg-type]
            provider=turn.provider,
        )
        node = with_reading(node, sampled, at)
    return node


@given(nodes=st.lists(NODES, min_size=3, max_size=3), turns=st.lists(TURNS, max_size=25))
@settings(deadline=None, max_examples=100)
def test_readings_of_all_nodes_at_once_leave_what_they_leave_of_each(
    nodes: list[NodeState], turns: list[Turn]
) -> None:
    each = [one_by_one(number, node, turns) for number, node in enumerate(nodes)]

    assert in_arrays(nodes, turns) == each
