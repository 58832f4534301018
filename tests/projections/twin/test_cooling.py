"""Cooling models, with the numbers of the specification."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_projections.twin.cooling import (
    Column,
    Heat,
    linear,
    model_named,
    model_names,
    stress,
    tdp_ratio,
)


def heat(power_w: float, tdp_w: float = 1000, ambient_c: float = 20) -> Heat:
    return Heat(np.array([float(power_w)]), np.array([float(tdp_w)]), np.array([float(ambient_c)]))


def column(*values: float) -> Column:
    return np.array(values)


@pytest.mark.parametrize(
    ("watts", "ambient", "expected"),
    [
        pytest.param(1440, 25, 31.3, id="the specification's example"),
        pytest.param(4000, 20, 80, id="the reference node in a cool hall"),
        pytest.param(4000, 40, 90, id="the reference node in a hot hall"),
        pytest.param(0, 25, 2.5, id="heat alone"),
        pytest.param(1000, -10, 20, id="no bonus below the baseline"),
        pytest.param(90_000, 25, 100, id="at most 100"),
    ],
)
def test_the_linear_model(watts: float, ambient: float, expected: float) -> None:
    assert linear(heat(watts, ambient_c=ambient))[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("watts", "tdp", "ambient", "expected"),
    [
        pytest.param(500, 1000, 20, 50, id="half of the TDP"),
        pytest.param(500, 1000, 30, 62.5, id="ten degrees take a fifth of the reserve"),
        pytest.param(400, 1000, 70, 80, id="half of the reserve remains"),
        pytest.param(900, 1000, 45, 100, id="at most 100"),
        pytest.param(0, 0, 20, 0, id="no hardware, no watts"),
    ],
)
def test_the_tdp_ratio_model(watts: float, tdp: float, ambient: float, expected: float) -> None:
    assert tdp_ratio(heat(watts, tdp, ambient))[0] == pytest.approx(expected)


def test_both_models_are_installed_as_entry_points() -> None:
    assert {"linear", "tdp-ratio"} <= set(model_names())
    assert (model_named("linear"), model_named("tdp-ratio")) == (linear, tdp_ratio)


def test_the_result_of_a_model_is_clipped_to_0_to_100() -> None:
    results = column(float("nan"), -3, 1e9, 42)

    assert stress(lambda _: results, heat(0)).tolist() == [100, 0, 100, 42]


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 100_000), st.integers(-50, 60))
@settings(deadline=None, max_examples=60)
def test_more_power_never_lowers_the_stress(
    watts: float, more: float, tdp: float, ambient: float
) -> None:
    for model in (linear, tdp_ratio):
        less = model(heat(watts, tdp, ambient))[0]

        assert 0 <= less <= model(heat(watts + more, tdp, ambient))[0] <= 100
