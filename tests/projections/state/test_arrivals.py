"""The history of what arriving pods ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulie_projections.state.arrivals import (
    HOURS,
    MOST_WINDOWS,
    ArrivalHistory,
    at_quantile,
    closed_before,
    hour_of,
    largest_of,
    size_class,
    with_arrival,
)
from joulie_projections.state.rows import decode, encode
from joulie_projections.state.state import ClusterRow

MONDAY = 4 * 24 * 12  # 1970 began on a Thursday
WEEK = HOURS * 12


def history(*arrivals: tuple[int, int]) -> ArrivalHistory:
    """Arrivals of one hour of the week, as pairs of the window and the millicores."""
    made: ArrivalHistory | None = None
    for window, milli in arrivals:
        made = with_arrival(made, window, milli, 0)
    assert made is not None
    return made


@given(st.integers(0, 10**12))
def test_a_class_holds_an_amount_with_at_most_a_quarter_more(amount: int) -> None:
    largest = largest_of(size_class(amount))

    assert amount <= largest <= amount * 5 // 4
    assert size_class(largest) == size_class(amount)
    assert size_class(largest + 1) == size_class(amount) + 1 or amount < 4


def test_arrivals_of_one_window_are_added_up() -> None:
    assert history((MONDAY, 500), (MONDAY, 250)).cpu_milli == 750


def test_a_window_is_counted_when_the_next_one_begins_and_empty_ones_count_too() -> None:
    made = history((MONDAY, 500), (MONDAY + 3, 100))

    assert made.cpu_windows == {str(size_class(500)): 1, "0": 2}
    assert made.cpu_milli == 100


def test_an_hour_continues_a_week_later() -> None:
    made = closed_before(history((MONDAY + 11, 500)), MONDAY + WEEK)

    assert made.cpu_windows == {str(size_class(500)): 1}


def test_a_history_with_counted_windows_is_written_as_a_row_and_read_again() -> None:
    row = ClusterRow(arrivals=history((MONDAY, 500), (MONDAY + 3, 100), (MONDAY + 4, 90)))

    assert decode("cluster", encode(row)) == row


def test_a_late_arrival_counts_in_the_newest_window() -> None:
    assert history((MONDAY + 3, 100), (MONDAY, 50)).cpu_milli == 150


def test_old_windows_fade() -> None:
    busy = [(MONDAY + week * WEEK + at, 8000) for week in range(20) for at in range(12)]
    quiet = [(MONDAY + week * WEEK + at, 100) for week in range(20, 60) for at in range(12)]

    made = history(*busy, *quiet)

    assert sum(made.cpu_windows.values()) <= MOST_WINDOWS
    assert at_quantile(made.cpu_windows, 990_000) == largest_of(size_class(100))


@given(st.lists(st.tuples(st.integers(0, 60 * WEEK), st.integers(0, 10**9)), max_size=50))
def test_the_history_stays_small_whatever_arrives(arrivals: list[tuple[int, int]]) -> None:
    made = history((0, 1), *((at // WEEK * WEEK + at % 12, milli) for at, milli in arrivals))

    assert sum(made.cpu_windows.values()) <= MOST_WINDOWS
    assert hour_of(made.window) == 0


@pytest.mark.parametrize(("share", "milli"), [(500_000, 0), (600_000, 100), (1_000_000, 900)])
def test_a_quantile_is_the_amount_that_a_share_of_the_windows_did_not_exceed(
    share: int, milli: int
) -> None:
    counts = {"0": 5, str(size_class(100)): 4, str(size_class(900)): 1}

    assert at_quantile(counts, share) == largest_of(size_class(milli))
