"""Exact sums of floats, and truncation of scores to integers. Pure.

A sum is kept as an integer without rounding, so terms can be added and removed in any order: the
result equals, to the last bit, the sum of the terms that remain. It is rounded once, when it is
read, as `math.fsum` does.
"""

import numpy as np

from joulie_projections.twin.arrays import Floats, Ints

# Sums are counted in units that every float is a multiple of: the smallest one is 2**-1074, and
# numpy splits each into an exponent and a fraction of 53 bits.
_FRACTION = 53
_PLACES = 1074 + _FRACTION
_ONE = 1 << _PLACES
_HALF = 27  # bits of a fraction's lower half: sums of halves fit a float without rounding
CLOSE = 1e-9  # how far below an integer a score may be and still be that integer
FEW = 16  # values up to which adding one by one is faster


def truncated(scores: Floats) -> Ints:
    """Truncates to integers. The terms of a score of exactly 64 may add up to a float just below
    it, because 0.7 has no exact float. A single addition, so that arrays and single numbers
    agree.
    """
    whole: Ints = (scores + CLOSE).astype(np.int64)
    return whole


def exact(values: Floats) -> int:
    if len(values) <= FEW:
        return sum(map(_exactly, values.tolist()))
    fractions, exponents = np.frexp(values)
    least = int(exponents.min())
    places = exponents - least
    units = np.ldexp(fractions, _FRACTION).astype(np.int64)
    upper = np.bincount(places, units >> _HALF).tolist()
    lower = np.bincount(places, units & ((1 << _HALF) - 1)).tolist()
    total = 0
    for place, (high, low) in enumerate(zip(upper, lower, strict=True)):
        total += ((int(high) << _HALF) + int(low)) << place
    return total << (least - _FRACTION + _PLACES)


def rounded(total: int) -> float:
    return total / _ONE


def _exactly(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_ONE // denominator)
