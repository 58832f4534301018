"""How long events gather between two small commits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_projections.projector.pacing import ENOUGH, INTERVAL_S, LONGEST_S, CommitPace


def wait_at(per_s: float) -> float:
    """The wait after a second of commits of one event each at this rate."""
    pace, wait_s = CommitPace(), LONGEST_S
    for number in range(int(per_s)):
        wait_s = pace.gather_s(1, 100 + number / per_s)
    return wait_s


def test_events_at_a_low_rate_gather_for_the_longest_time() -> None:
    assert wait_at(100) == LONGEST_S


def test_events_gather_until_there_are_enough() -> None:
    assert wait_at(2000) == pytest.approx(ENOUGH / 2000, rel=0.02)


def test_five_thousand_events_a_second_do_not_gather() -> None:
    assert wait_at(5000) == 0


def test_a_single_late_commit_does_not_change_the_wait() -> None:
    pace = CommitPace()
    for number in range(10_000):
        pace.gather_s(1, 100 + number / 10_000)

    assert pace.gather_s(1, 101 + INTERVAL_S / 5) == 0


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 10)), max_size=50))
def test_gathering_never_delays_an_event_by_more_than_the_longest_time(
    commits: list[tuple[int, float]],
) -> None:
    pace, now_s = CommitPace(), 0.0
    for events, after_s in commits:
        now_s += after_s
        assert 0 <= pace.gather_s(events, now_s) <= LONGEST_S
