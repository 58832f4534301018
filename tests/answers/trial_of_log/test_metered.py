"""How much of the time of nodes has readings, awake and asleep."""

import pytest

from joulie_answers.trial_of_log.metered import Metered, RunningHour, metered_in
from joulie_audit.ledger.pods_in_log import Off
from joulie_projections.energy.intervals import HOUR_MS, Interval, NodeEnergy
from joulie_simulator.trial.calibration import Hours

NAMES = frozenset(("n1", "n2"))


def hour(*rows: NodeEnergy, start: int = 0) -> Interval:
    return Interval("hour", start * HOUR_MS, rows)


def energy(name: str, *, unknown_h: float = 0.0, plan: str = "", uj: int = 7) -> NodeEnergy:
    return NodeEnergy(name, plan, pods_uj=2, idle_uj=uj - 2, unknown_ms=round(unknown_h * HOUR_MS))


def metered(
    *intervals: Interval,
    off: tuple[float, float] | None = None,
    running: RunningHour | None = None,
) -> Metered:
    times = {"n1": [Off(round(off[0] * HOUR_MS), round(off[1] * HOUR_MS))]} if off else {}
    return metered_in(intervals, (0, 2 * HOUR_MS), NAMES, times, running)


def hours(found: Metered) -> Hours:
    whole = Hours()
    for span in found.spans:
        whole = whole.plus(span.hours)
    return whole


def test_a_node_without_a_row_in_an_interval_has_no_readings_there() -> None:
    found = metered(hour(energy("n1"), energy("n2")), hour(energy("n1"), start=1))

    assert found.nodes == NAMES
    assert hours(found) == Hours(awake=4, read_awake=3)


def test_a_node_without_any_energy_is_not_metered() -> None:
    found = metered(hour(energy("n1"), NodeEnergy("n2", "", unknown_ms=HOUR_MS)))

    assert found.nodes == {"n1"}


def test_gaps_are_time_without_readings_and_rows_of_several_plans_add_up() -> None:
    rows = (energy("n1", unknown_h=0.25), energy("n1", plan="p", unknown_h=0.25))
    found = metered(hour(*rows))

    assert hours(found) == Hours(awake=1, read_awake=0.5)
    assert found.pods_uj == [{"n1": 4}]


@pytest.mark.parametrize(
    ("unknown_h", "expected"),
    [
        (0.0, Hours(0.5, 0.5, 0.5, 0.5)),
        (0.5, Hours(0.5, 0.5, 0.5, 0.0)),
        (0.75, Hours(0.5, 0.5, 0.25, 0.0)),
    ],
    ids=["a controller reads on", "a node that sleeps is silent", "and silent when awake"],
)
def test_a_gap_counts_as_one_of_sleep_first(unknown_h: float, expected: Hours) -> None:
    found = metered(hour(energy("n1", unknown_h=unknown_h)), off=(0.0, 0.5))

    assert hours(found) == expected


def test_of_the_running_hour_the_ledger_knows_the_time_exactly() -> None:
    running = RunningHour(HOUR_MS, {"n1": HOUR_MS // 4})
    found = metered(hour(energy("n1")), hour(energy("n1"), start=1), running=running)

    assert [span.hours.read_awake for span in found.spans] == [1, 0.25]


def test_an_interval_counts_from_the_start_of_the_period_and_is_cut_to_it() -> None:
    day = Interval("day", 0, [energy("n1")])
    [span] = metered(day).spans

    assert (span.start_s, span.end_s) == (0, 7200)
