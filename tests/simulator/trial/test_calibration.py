"""The replay beside the meters: both sides count what readings cover, and nothing else."""

from collections.abc import Sequence

import numpy as np
import pytest

from joulie_simulator.energy.logged_fleet import LoggedFleet, LoggedNode
from joulie_simulator.energy.node_meter import NodeMeter
from joulie_simulator.trial.calibration import Calibration, Hours, MeteredSpan, calibrated

WATTS, MINUTES, STEP_S = 1000.0, 60, 60.0


def meter(*, asleep: Sequence[int] = (), metered: int = 4) -> NodeMeter:
    """An hour of four nodes of a kilowatt; a sleeping one draws a tenth."""
    fleet = LoggedFleet([LoggedNode(f"n{n}", 8, 0, WATTS, 5.0, 0.0) for n in range(4)])
    fleet.set_asleep(np.array(asleep, np.int64), asleep=True)
    found = NodeMeter(np.arange(4) < metered, MINUTES, STEP_S)
    for _ in range(MINUTES):
        found.read(fleet)
    return found


def spans(each_kwh: Sequence[float], hours: Hours | None = None) -> list[MeteredSpan]:
    length_s = 3600 / len(each_kwh)
    own = hours or Hours(4 / len(each_kwh), 0.0, 4 / len(each_kwh), 0.0)
    return [
        MeteredSpan(number * length_s, (number + 1) * length_s, kwh, own)
        for number, kwh in enumerate(each_kwh)
    ]


def error(found: Calibration) -> float:
    assert found.judged.error is not None
    return found.judged.error


def test_energy_of_a_part_of_an_hour_is_that_part_of_it() -> None:
    assert meter().kwh(0, 3600) == pytest.approx((4, 0))
    assert meter(asleep=[0, 1]).kwh(90, 1890) == pytest.approx((1, 0.1))
    assert meter(asleep=[0, 1]).awake_node_hours == pytest.approx(2)


def test_nodes_without_readings_are_not_in_the_replay() -> None:
    assert meter(metered=3).kwh(0, 3600) == pytest.approx((3, 0))


def test_a_replay_of_what_the_meters_say_has_no_error() -> None:
    found = calibrated(spans([1.0] * 4), meter())

    assert error(found) == pytest.approx(0)
    assert found.is_good


@pytest.mark.parametrize(("kwh", "is_good"), [(1.04, True), (1.06, False), (0.96, True)])
def test_an_error_above_five_percent_is_not_good(kwh: float, is_good: bool) -> None:
    assert calibrated(spans([kwh] * 4), meter()).is_good is is_good


def test_the_later_half_is_judged_and_errors_of_both_do_not_cancel() -> None:
    found = calibrated(spans([1.5, 1.5, 0.5, 0.5]), meter())

    assert found.is_apart
    assert found.whole.error == pytest.approx(0)
    assert error(found) == pytest.approx(1)
    assert found.by_interval == pytest.approx(0.5)


def test_few_intervals_are_judged_as_a_whole() -> None:
    found = calibrated(spans([1.0, 3.0]), meter())

    assert not found.is_apart
    assert error(found) == pytest.approx(0)


def test_time_without_readings_is_in_neither_side() -> None:
    half_read = Hours(1.0, 0.0, 0.5, 0.0)

    assert error(calibrated(spans([0.5] * 4, half_read), meter())) == pytest.approx(0)


def test_sleep_without_readings_is_in_neither_side() -> None:
    silent = Hours(0.5, 0.5, 0.5, 0.0)

    found = calibrated(spans([0.5] * 4, silent), meter(asleep=[0, 1]))

    assert error(found) == pytest.approx(0)


def test_a_replay_that_sleeps_more_than_the_log_did_is_an_error() -> None:
    found = calibrated(spans([1.0] * 4), meter(asleep=[0, 1]))

    assert error(found) == pytest.approx(-0.45)


def test_without_readings_nothing_is_good() -> None:
    found = calibrated([], meter())

    assert found.judged.error is None
    assert not found.is_good
