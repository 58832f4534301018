"""The last lines of a demo."""

from pathlib import Path
from typing import Any

from joulie_cli.demo.farewell import text

SUMMARY: dict[str, Any] = {"decisions": 40, "pods": 20, "nodes": 5, "refused": 3}
SIMULATED = {
    "simulated_s": 7200,
    "core_hours": 12.5,
    "card_hours": 3.0,
    "wait_p99_s": 4.0,
    "unanswered": 0,
    "bound": 20,
}


def last_lines(saved: dict[str, Any], simulated: dict[str, Any] | None = SIMULATED) -> str:
    summary = SUMMARY | {"saved": saved, "simulated": simulated}
    return text(summary, 60.0, "joulie", " --data d", Path("d"))


def test_they_say_what_was_saved_and_how_fast_simulated_hours_run() -> None:
    said = last_lines({"kwh": 0.0123, "of_kwh": 0.5, "why": ""})

    assert "0.012 kWh saved, beside 0.500 kWh metered" in said
    assert "`joulie report --data d` shows how" in said
    assert "Simulated hours run 60 times as fast as real ones" in said


def test_what_is_not_known_is_no_number() -> None:
    said = last_lines({"kwh": None, "of_kwh": 0.5, "why": "no report was written yet"}, None)

    assert "What was saved is not known: no report was written yet. `joulie report" in said
    assert "kWh saved" not in said


def test_a_demo_that_ended_before_it_had_a_state_names_no_number_of_nodes() -> None:
    before = SUMMARY | {"nodes": None, "saved": {"kwh": None, "why": ""}, "simulated": None}

    said = text(before, 60.0, "joulie", "", Path("d"))

    assert "40 decisions for 20 pods; 3 of them refused some node." in said


def test_more_energy_than_the_baseline_is_said_so() -> None:
    assert "0.012 kWh more used" in last_lines({"kwh": -0.0123, "of_kwh": 0.5, "why": ""})
