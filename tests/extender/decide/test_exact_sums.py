"""Exact sums with changes equal sums from scratch, and those of `math.fsum`."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from joulie_extender.decide.exact_sums import FEW, exact, rounded

SMALLEST = 5e-324
# Few enough for no sum of them to be too large for a float.
finite = st.floats(-1e300, 1e300) | st.sampled_from([0.0, -0.0, SMALLEST, -SMALLEST, 0.1])
# Short ones are added up by another way than long ones.
values = st.lists(finite, max_size=3 * FEW).map(lambda found: np.array(found, np.float64))


@given(values)
def test_a_sum_is_rounded_once(some: np.ndarray) -> None:
    assert rounded(exact(some)) == math.fsum(some.tolist())


@given(values, values)
def test_what_is_taken_off_again_leaves_no_trace(some: np.ndarray, others: np.ndarray) -> None:
    both = exact(np.concatenate([some, others]))
    assert both == exact(some) + exact(others)
    assert both - exact(others) == exact(some)


@given(st.lists(finite, min_size=FEW + 1, max_size=3 * FEW))
def test_many_are_the_same_side_by_side_as_one_by_one(found: list[float]) -> None:
    together = exact(np.array(found, np.float64))
    assert together == sum(exact(np.array([value])) for value in found)
