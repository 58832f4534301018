"""The trends of many nodes at once: the bits of `trend_w_per_min` of each."""

import numpy as np
import numpy.typing as npt

from joulie_projections.state.state import Sample
from joulie_projections.twin.arrays import Bools, Floats, Ints
from joulie_projections.twin.twin import MIN_TREND_SPAN_MS, trend_w_per_min

_NS_PER_MS = 1_000_000
_EXACT = 2**53  # integers up to here are floats
# Of the trends that are computed in columns. With 64 readings, no sum leaves 63 bits.
_LARGEST_MW = 10**8
_LONGEST_MS = 400_000


def trends_w_per_min(made_at: Ints, power_mw: Ints, count: Ints) -> Floats:
    """A row for each node, with its `count` readings from the left, oldest first."""
    rows = np.arange(len(count))
    times = (made_at - made_at[:, :1]) // _NS_PER_MS
    span = times[rows, np.maximum(count - 1, 0)]
    has_trend = (count > 1) & (span >= MIN_TREND_SPAN_MS)
    is_within = np.arange(made_at.shape[1]) < count[:, None]
    powers = _smoothed(power_mw, count)
    is_plain = has_trend & (count != 3) & _are_small(times, powers, is_within)
    rise, spread = _fitted(np.where(is_within, times, 0), np.where(is_within, powers, 0), count)
    is_plain &= (np.abs(rise) <= _EXACT) & (spread <= _EXACT)
    trends = np.zeros(len(count))
    np.divide(rise, spread, out=trends, where=is_plain & (spread != 0))
    for row in np.flatnonzero(has_trend & ~is_plain).tolist():
        trends[row] = _one_by_one(made_at[row], power_mw[row], int(count[row]))
    return trends


def _are_small(times: Ints, powers: Ints, is_within: Bools) -> Bools:
    is_small = (np.abs(times) <= _LONGEST_MS) & (np.abs(powers) <= _LARGEST_MW)
    return np.asarray((is_small | ~is_within).all(axis=1))


def _fitted(times: Ints, powers: Ints, count: Ints) -> tuple[Ints, Ints]:
    """The numerator and the denominator of the slope of a least-squares line. Where they leave 63
    bits, they mean nothing: `_are_small` says where they do not."""
    sum_t, sum_p = times.sum(axis=1), powers.sum(axis=1)
    sum_tp, sum_tt = (times * powers).sum(axis=1), (times * times).sum(axis=1)
    # mW per ms is W per s
    return (count * sum_tp - sum_t * sum_p) * 60, count * sum_tt - sum_t * sum_t


def _smoothed(values: Ints, count: Ints) -> Ints:
    """Medians of three, with both ends extrapolated, where there are four values or more."""
    if values.shape[1] < 4:
        return values
    smoothed = values.copy()
    inner = _medians(values[:, :-2], values[:, 1:-1], values[:, 2:])
    smoothed[:, 1:-1] = inner
    smoothed[:, 0] = _medians(values[:, 0], inner[:, 0], 3 * inner[:, 0] - 2 * inner[:, 1])
    rows, last = np.arange(len(values)), np.maximum(count, 4) - 1
    near, far = inner[rows, last - 2], inner[rows, last - 3]
    smoothed[rows, last] = _medians(values[rows, last], near, 3 * near - 2 * far)
    return np.where(count[:, None] < 4, values, smoothed)


def _medians(one: Ints, two: Ints, three: Ints) -> Ints:
    between = np.minimum(np.maximum(one, two), three)
    return np.asarray(np.maximum(np.minimum(one, two), between))


def _one_by_one(made_at: npt.NDArray[np.int64], power_mw: Ints, count: int) -> float:
    times: list[int] = made_at[:count].tolist()
    powers: list[int] = power_mw[:count].tolist()
    return trend_w_per_min(tuple(map(Sample, times, powers)))
