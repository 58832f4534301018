"""What arriving pods ask for, by the hour of the week.

Requests are summed over windows of five minutes, and the windows of each of the 168 hours of a week
(in UTC) are counted by the size of their sum. All numbers are integers and the size is bounded, so
the history is part of the state and a replay computes the same forecast.
"""

from collections.abc import Mapping
from itertools import accumulate

import msgspec

WINDOW_NS = 300_000_000_000
HOURS = 168
_PER_HOUR = 12
_PER_WEEK = HOURS * _PER_HOUR
MOST_WINDOWS = (
    8 * _PER_HOUR
)  # eight weeks; beyond that all counts are halved, so that old ones fade

# Windows by the class of their sum. A row is written in a fixed order, and so its keys are texts.
Counts = dict[str, int]


class ArrivalHistory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One hour of the week: its newest window, and the counts of the windows before."""

    since: int  # the first window that was counted, numbered from 1970
    window: int
    cpu_milli: int = 0  # in the newest window, of pods without cards
    gpu_milli: int = 0
    cpu_windows: Counts = {}
    gpu_windows: Counts = {}


def window_of(at: int) -> int:
    return at // WINDOW_NS


def hour_of(window: int) -> int:
    """0 is Thursday, 0:00 UTC, as 1970 began."""
    return window // _PER_HOUR % HOURS


def with_arrival(
    known: ArrivalHistory | None, window: int, cpu_milli: int, gpu_milli: int
) -> ArrivalHistory:
    """`known` is the history of the window's hour. A late arrival counts in the newest window."""
    if known is None:
        return ArrivalHistory(window, window, cpu_milli, gpu_milli)
    now = closed_before(known, window)
    return ArrivalHistory(
        now.since,
        now.window,
        now.cpu_milli + cpu_milli,
        now.gpu_milli + gpu_milli,
        now.cpu_windows,
        now.gpu_windows,
    )


def closed_before(known: ArrivalHistory, window: int) -> ArrivalHistory:
    """The history with this window as the newest; windows without arrivals count, too."""
    passed = _turn(window) - _turn(known.window)
    if passed <= 0:
        return known
    zeros = min(passed - 1, MOST_WINDOWS)
    return ArrivalHistory(
        known.since,
        window,
        cpu_windows=_counted(known.cpu_windows, known.cpu_milli, zeros),
        gpu_windows=_counted(known.gpu_windows, known.gpu_milli, zeros),
    )


def _turn(window: int) -> int:
    """Numbers the windows of one hour of the week, over all weeks."""
    return window // _PER_WEEK * _PER_HOUR + window % _PER_HOUR


def _counted(counts: Counts, amount: int, zeros: int) -> Counts:
    counted = dict(counts)
    for size, more in ((str(size_class(amount)), 1), ("0", zeros)):
        if more:
            counted[size] = counted.get(size, 0) + more
    while sum(counted.values()) > MOST_WINDOWS:
        counted = {size: count // 2 for size, count in counted.items() if count > 1}
    return counted


# --- sizes ------------------------------------------------------------------------------------


def size_class(amount: int) -> int:
    """Four classes for each doubling; 0 for nothing."""
    if amount <= 0:
        return 0
    octave = amount.bit_length() - 1
    return 4 * octave + ((amount << 2) >> octave) % 4 + 1


def largest_of(size: int) -> int:
    """The largest amount of a class, at most a quarter above the smallest."""
    if size == 0:
        return 0
    octave, quarter = divmod(size - 1, 4)
    return ((5 + quarter << octave) - 1) // 4


def at_quantile(counts: Mapping[str, int], per_million: int) -> int:
    """The amount that this share of the windows did not exceed."""
    sizes = sorted(counts, key=int)
    least = -(-per_million * sum(counts.values()) // 1_000_000)
    for size, reached in zip(sizes, accumulate(counts[size] for size in sizes), strict=True):
        if reached >= least:
            return largest_of(int(size))
    return 0
