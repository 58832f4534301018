"""The table of `joulie demo --compare`: work and energy of two runs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_bus.runtime.presets import PRESET

MOST_DIFFERENCE = 0.05  # of the work: a saving would be work that was not done
SAME_HOURS = 0.001  # a run that was interrupted is shorter
MOST_UNKNOWN = 0.01  # of the energy: the readings have gaps if the machine is too busy


class Measured(NamedTuple):
    """One run: its data directory and settings, and the answers of its commands."""

    data: str
    settings: Mapping[str, str]
    simulated: Mapping[str, Any]
    energy: Mapping[str, Any]
    replayed: Mapping[str, Any]


def as_json(first: Measured, second: Measured, speed: float) -> dict[str, Any]:
    """Energy is in simulated time, as the work is: the meters run in real time."""
    before, after = runs = [_run(run, speed) for run in (first, second)]
    why_not = _why_not(before, after)
    per_work = None if why_not else _change(before["kwh_per_work"], after["kwh_per_work"])
    return {
        "runs": runs,
        "change_of_work": _change(before["work_kwh"], after["work_kwh"]),
        "change_of_kwh_per_work": per_work,
        "not_compared": why_not,
        "mismatches": before["mismatches"] + after["mismatches"],
    }


def _why_not(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Why the energy per work of two runs is not compared; empty if it is."""
    if any(run["unknown_kwh"] > MOST_UNKNOWN * run["kwh"] for run in (before, after)):
        return "gaps in the readings"
    if any(run["behind_s"] for run in (before, after)):
        return "a ledger that lacks facts"
    if any(run["turned_away"] for run in (before, after)):
        return "not the same pods"
    if abs(before["simulated_hours"] - after["simulated_hours"]) > SAME_HOURS:
        return "not the same time"
    if not before["work_kwh"] or not after["work_kwh"]:
        return "no work"
    is_equal = abs(after["work_kwh"] / before["work_kwh"] - 1) <= MOST_DIFFERENCE
    return "" if is_equal else "different work"


def _run(run: Measured, speed: float) -> dict[str, Any]:
    simulated, pods = run.simulated, run.simulated["pods"]
    kwh, work = run.energy["meter_kwh"] * speed, simulated["work_kwh"]
    return {
        "settings": dict(run.settings),
        "data": run.data,
        "simulated_hours": simulated["simulated_s"] / 3600,
        "arrived": pods["waiting"] + pods["running"] + pods["finished"],
        "turned_away": pods["turned_away"],
        "finished": pods["finished"],
        "running": pods["running"],
        "waiting": pods["waiting"],
        "wait_p50_s": simulated["wait_p50_s"],
        "wait_p99_s": simulated["wait_p99_s"],
        "core_hours": simulated["core_hours"],
        "card_hours": simulated["card_hours"],
        "work_kwh": work,
        "kwh": kwh,
        "unknown_kwh": run.energy["unknown_kwh"] * speed,
        "behind_s": run.energy["ledger_behind_ms"] / 1000,
        "kwh_per_work": kwh / work if work else None,
        "decisions": run.replayed["decisions"],
        "mismatches": run.replayed["mismatches"],
    }


def _change(before: float | None, after: float | None) -> float | None:
    return after / before - 1 if before and after is not None else None


LINES = (
    ("simulated hours", "simulated_hours", ".2f"),
    ("pods that arrived", "arrived", ",d"),
    ("  never created: the queue was full", "turned_away", ",d"),
    ("  finished", "finished", ",d"),
    ("  running at the end", "running", ",d"),
    ("  waiting at the end", "waiting", ",d"),
    ("wait p50, s", "wait_p50_s", ",.0f"),
    ("wait p99, s", "wait_p99_s", ",.0f"),
    ("core-hours of work", "core_hours", ",.1f"),
    ("card-hours of work", "card_hours", ",.1f"),
    ("work, kWh", "work_kwh", ",.2f"),
    ("energy, kWh", "kwh", ",.2f"),
    ("  unknown, in no other figure", "unknown_kwh", ",.2f"),
    ("energy per work", "kwh_per_work", ",.3f"),
    ("decisions recomputed", "decisions", ",d"),
    ("  that differ", "mismatches", ",d"),
)


def as_text(data: Mapping[str, Any], what: str) -> TextWithTables:
    return TextWithTables.of(
        [
            f"The same pods twice: {what}",
            _table(data),
            "",
            "Work is what the jobs would need under ideal conditions, wherever they run. One run "
            "each, from an empty cluster: the load is low, and nodes sleep that a full cluster "
            "would use.",
            *(f"joulie explain POD --data {run['data']}" for run in data["runs"]),
        ]
    )


def _table(data: Mapping[str, Any]) -> TextTable:
    heads = [_scoring(run) for run in data["runs"]]
    rows = [
        (text, *("" if run[name] is None else format(run[name], form) for run in data["runs"]))
        for text, name, form in LINES
    ]
    change = data["change_of_kwh_per_work"]
    found = data["not_compared"] if change is None else f"{change:+.1%}"
    rows.append(("change of energy per work", "", found))
    return TextTable(("", *heads), rows, {*heads})


def _scoring(run: Mapping[str, Any]) -> str:
    sleeps = run["settings"]["POLICY_TYPE"] == "consolidate_and_sleep"
    return f"{run['settings'][PRESET]}, {'sleep' if sleeps else 'no sleep'}"
