"""The marginal power of a pod, with the examples of the specification."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus_kit import ask
from joulie_bus.events import PodAsk
from joulie_projections.hardware.guesses import guessed_cpu_max_w, guessed_gpu_max_w
from joulie_projections.twin.power import Coefficients, Rated, marginal_w

DEFAULTS = Coefficients()


def node(
    *,
    cores: float = 96,
    watts: float = 720,
    gpus: float = 0,
    gpu_w: float = 700,
    known: bool = True,
) -> Rated:
    return Rated.of(
        cores=np.array([float(cores)]),
        cpu_max_w=np.array([float(watts)]),
        gpus=np.array([float(gpus)]),
        gpu_max_w=np.array([float(gpu_w)]),
        known=np.array([known]),
    )


def asking(cores: float, gib: float = 0, *, performance: bool = False) -> PodAsk:
    return PodAsk(
        uid="u",
        namespace="n",
        name="p",
        workload="performance" if performance else "standard",
        cpu_milli=round(cores * 1000),
        memory_bytes=round(gib * 2**30),
    )


def marginal(pod: PodAsk, on: Rated, coefficients: Coefficients = DEFAULTS) -> float:
    return float(marginal_w(pod, on, coefficients)[0])


def test_eight_of_96_cores_add_42_watts() -> None:
    assert marginal(ask(cores=8), node()) == pytest.approx(42)


def test_two_cards_add_910_watts_to_the_21_of_four_cores() -> None:
    assert marginal(ask(cores=4, gpus=2), node(gpus=8)) == pytest.approx(21 + 910)


def test_a_performance_pod_draws_more_of_its_cards() -> None:
    pod = ask(performance=True, cores=4, gpus=2)

    assert marginal(pod, node(gpus=8)) == pytest.approx(21 + 0.85 * 2 * 700)


def test_a_slice_of_a_card_adds_its_share() -> None:
    assert marginal(ask(cores=0.96, gpus=0.5), node(gpus=8)) == pytest.approx(5.04 + 227.5)


@pytest.mark.parametrize(
    ("gib", "factor"),
    [(0, 1.0), (10, 1.1), (30, 1.3), (500, 1.3)],
    ids=["none", "ten GiB", "at the end of the range", "beyond it"],
)
def test_memory_raises_the_power_of_cores_up_to_a_limit(gib: float, factor: float) -> None:
    assert marginal(asking(8, gib), node()) == pytest.approx(42 * factor)


def test_the_memory_factor_can_be_disabled() -> None:
    without = Coefficients(memory_factor=False)

    assert marginal(asking(8, 10), node(), without) == pytest.approx(42)


def test_the_marginal_power_on_unknown_hardware_is_zero() -> None:
    assert marginal(ask(cores=8, gpus=1), node(gpus=8, known=False)) == 0


@pytest.mark.parametrize(
    ("performance", "cores"), [(False, 0.25), (True, 0.5)], ids=["standard", "performance"]
)
def test_a_pod_without_a_cpu_request_counts_with_a_default(performance: bool, cores: float) -> None:
    none, some = asking(0, performance=performance), asking(cores, performance=performance)

    assert marginal(none, node()) == marginal(some, node()) > 0


def test_the_marginal_power_is_capped_at_that_of_the_node() -> None:
    large = ask(cores=500, gpus=500)

    assert marginal(large, node(gpus=8)) == pytest.approx(0.7 * 720 + 0.65 * 8 * 700)


def test_a_node_of_unknown_cores_counts_as_one_core() -> None:
    assert marginal(asking(0.5), node(cores=0)) == pytest.approx(0.7 * 0.5 * 720)


@pytest.mark.parametrize(("cores", "watts"), [(0, 150), (32, 150), (96, 336)])
def test_unknown_cpu_power_is_estimated_from_the_cores(cores: float, watts: float) -> None:
    assert guessed_cpu_max_w(cores) == watts


@pytest.mark.parametrize(
    ("model", "watts"), [("AMD Instinct MI300X", 400), ("NVIDIA L4", 350), ("", 350)]
)
def test_unknown_gpu_power_is_estimated_from_the_vendor(model: str, watts: float) -> None:
    assert guessed_gpu_max_w(model) == watts


@given(
    cores=st.floats(0, 256),
    more=st.floats(0, 64),
    gib=st.floats(0, 512),
    node_milli=st.integers(0, 256_000),
)
@settings(deadline=None, max_examples=60)
def test_a_larger_pod_never_draws_less(
    cores: float, more: float, gib: float, node_milli: int
) -> None:
    on = node(cores=node_milli / 1000)
    small = marginal(asking(max(0.25, cores), gib), on)
    large = marginal(asking(max(0.25, cores) + more, gib + more), on)

    assert 0 <= small <= large
