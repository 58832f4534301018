from typing import Any

import pytest

from joulie_cli.demo.comparison import Measured, as_json, as_text


def run(
    work_kwh: float = 2.0,
    meter_kwh: float = 0.1,
    unknown_kwh: float = 0.0,
    mismatches: int = 0,
    turned_away: int = 0,
    simulated_s: float = 3600.0,
) -> Measured:
    simulated = {
        "simulated_s": simulated_s,
        "pods": {"turned_away": turned_away, "waiting": 1, "running": 2, "finished": 3},
        "work_kwh": work_kwh,
        "core_hours": 10.0,
        "card_hours": 0.0,
        "wait_p50_s": 0.0,
        "wait_p99_s": 5.0,
    }
    energy = {"meter_kwh": meter_kwh, "unknown_kwh": unknown_kwh, "ledger_behind_ms": 0}
    settings = {"PRESET": "savings", "POLICY_TYPE": "consolidate_and_sleep"}
    replayed = {"decisions": 7, "mismatches": mismatches}
    return Measured("/data", settings, simulated, energy, replayed)


def compared(first: Measured, second: Measured) -> dict[str, Any]:
    return as_json(first, second, speed=60)


def behind(seconds: float) -> Measured:
    usual = run()
    return usual._replace(energy={**usual.energy, "ledger_behind_ms": int(1000 * seconds)})


def test_energy_is_in_simulated_time_and_compared_per_work() -> None:
    found = compared(run(meter_kwh=0.1), run(meter_kwh=0.051, work_kwh=2.04))

    assert [each["kwh"] for each in found["runs"]] == pytest.approx([6.0, 3.06])
    assert found["change_of_kwh_per_work"] == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (run(work_kwh=1.8), "different work"),
        (run(work_kwh=2.2), "different work"),
        (run(turned_away=1), "not the same pods"),
        (run(simulated_s=3000.0), "not the same time"),
        (run(work_kwh=0.0), "no work"),
        (run(unknown_kwh=0.01), "gaps in the readings"),
        (behind(0.1), "a ledger that lacks facts"),
    ],
)
def test_without_equal_work_and_whole_readings_there_is_no_figure(
    second: Measured, why: str
) -> None:
    found = compared(run(), second)

    assert (found["change_of_kwh_per_work"], found["not_compared"]) == (None, why)
    assert why in as_text(found, "100 nodes")


def test_mismatches_of_both_runs_are_counted() -> None:
    assert compared(run(mismatches=1), run(mismatches=2))["mismatches"] == 3
