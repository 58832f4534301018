"""Trends of many nodes at once are those of each."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import NOON
from joulie_projections.state.state import Sample
from joulie_projections.twin.trends import trends_w_per_min
from joulie_projections.twin.twin import trend_w_per_min

ROOM = 40
STEPS_MS = st.sampled_from([0, 1, 999, 3_000, 10_000, 10_000, 10_001, 60_000, -5_000])
POWERS = st.integers(0, 900_000) | st.integers(0, 10**12)
READ = st.lists(st.tuples(STEPS_MS, st.integers(0, 999_999), POWERS), max_size=ROOM)


def samples_of(read: list[tuple[int, int, int]]) -> tuple[Sample, ...]:
    found: list[Sample] = []
    at = NOON
    for step_ms, rest_ns, power_mw in read:
        at += step_ms * 1_000_000 + rest_ns
        found.append(Sample(at, power_mw))
    return tuple(found)


@given(st.lists(READ, min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_the_trends_of_many_nodes_have_the_bits_of_each(
    nodes: list[list[tuple[int, int, int]]],
) -> None:
    samples = [samples_of(read) for read in nodes]
    made_at, power_mw = (np.full((len(samples), ROOM), 77, np.int64) for _ in range(2))
    for row, held in enumerate(samples):
        made_at[row, : len(held)] = [sample.at for sample in held]
        power_mw[row, : len(held)] = [sample.power_mw for sample in held]
    count = np.array([len(held) for held in samples], np.int64)

    trends = trends_w_per_min(made_at, power_mw, count)

    assert trends.tobytes() == np.array([trend_w_per_min(held) for held in samples]).tobytes()
