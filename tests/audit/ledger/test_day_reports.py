"""What was saved on each day: which day is computed next, and the result in a running demo."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from joulie_audit.ledger.day_reports import Kept, due, rests
from joulie_demo import Running, demo, told_by
from joulie_projections.energy.intervals import DAY_MS, start_of
from joulie_projections.energy.savings import Savings
from joulie_projections.store.energy_table import EnergyTable

TODAY = 20_000 * DAY_MS
YESTERDAY, BEFORE = TODAY - DAY_MS, TODAY - 2 * DAY_MS
NOON = TODAY + DAY_MS // 2
MINUTE_S = 60.0


def savings(day_ms: int, complete_to_ms: int, *, cpu_s: float = 0.0) -> Savings:
    return Savings(
        computed_ms=complete_to_ms,
        position=1,
        from_ms=day_ms,
        to_ms=complete_to_ms,
        baseline="kube-default",
        policy="joulie-energy",
        pods=1,
        nodes=1,
        asked_from_ms=day_ms,
        asked_to_ms=day_ms + DAY_MS,
        complete_to_ms=complete_to_ms,
        cpu_s=cpu_s,
    )


def kept(*computed: Savings, began_ms: int = BEFORE, complete_to_ms: int = NOON) -> Kept:
    newest = max(computed, key=lambda each: each.computed_ms, default=None)
    days = {day for day in (BEFORE, YESTERDAY, TODAY) if day >= began_ms // DAY_MS * DAY_MS}
    by_day = {each.asked_from_ms: each for each in computed}
    return Kept(newest, by_day, days, began_ms, complete_to_ms)


def next_day(found: Kept, *failed: int) -> int | None:
    return due(found, NOON, MINUTE_S, set(failed))


def test_this_day_comes_first_then_days_that_are_missing_or_not_whole() -> None:
    today, half = savings(TODAY, NOON - 1), savings(YESTERDAY, TODAY - 1)

    assert next_day(kept()) == TODAY
    assert next_day(kept(today)) == YESTERDAY
    assert next_day(kept(today, half)) == YESTERDAY
    assert next_day(kept(today, savings(YESTERDAY, TODAY))) == BEFORE
    assert next_day(kept(today), YESTERDAY, BEFORE) == TODAY


def test_this_day_is_computed_again_when_there_are_new_readings() -> None:
    earlier = [savings(YESTERDAY, TODAY), savings(BEFORE, YESTERDAY)]

    assert next_day(kept(savings(TODAY, NOON - 1), *earlier)) == TODAY
    assert next_day(kept(savings(TODAY, NOON), *earlier)) is None


def test_a_day_is_computed_from_an_interval_of_readings_on() -> None:
    assert next_day(kept(began_ms=NOON - 59_000)) is None
    assert next_day(kept(began_ms=NOON - 60_000)) == TODAY


def test_the_pause_grows_with_what_a_report_costs_to_five_percent_of_a_core() -> None:
    cheap, dear = savings(TODAY, NOON, cpu_s=1.0), savings(TODAY, NOON, cpu_s=10.0)

    assert not rests(None, NOON, MINUTE_S)
    assert rests(cheap, NOON + 59_999, MINUTE_S)
    assert not rests(cheap, NOON + 60_000, MINUTE_S)
    assert rests(dear, NOON + 189_999, MINUTE_S)
    assert not rests(dear, NOON + 190_000, MINUTE_S)


def test_a_clock_that_was_set_back_does_not_stop_the_computations() -> None:
    assert not rests(savings(TODAY, NOON), NOON - DAY_MS, MINUTE_S)


def saved_now(running: Running) -> dict[str, Any]:
    known = running.data.running()
    assert known is not None
    with urlopen(f"{known.endpoints['console']}/v1/saved") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def of_today(running: Running) -> dict[int, Savings]:
    with EnergyTable.readable(running.data.database) as table:
        today = start_of("day", time.time_ns() // 1_000_000)
        return table.savings_by_day(today, today + DAY_MS)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_running_demo_shows_what_was_saved_today_as_a_report_computes_it(tmp_path: Path) -> None:
    data, tariff = tmp_path / "data", tmp_path / "tariff.csv"
    tariff.write_text("from,price,currency,gco2_per_kwh\n2025-01-01,0.25,EUR,300\n")
    settings = {"GRID_SOURCE": str(tariff)}
    with demo(data, "--nodes", "20", **settings) as running:
        running.await_decisions(50)
        # The first report needs a minute of readings.
        running.wait_until(lambda: bool(of_today(running)), patience_s=800.0)
        found = saved_now(running)
        running.end()
    # Queries beside the fold use no connection of it.
    assert "refused" not in (data / "logs/ledger.log").read_text()
    day = datetime.fromtimestamp(found["today"]["from_ms"] / 1000, UTC)
    period = ("--from", f"{day:%Y-%m-%d}", "--to", f"{day + timedelta(days=1):%Y-%m-%d}")
    _, report = told_by("report", "--unsigned", *period, "--data", data)

    today, newest = found["today"], found["report"]
    share = newest["share_per_work"]["mid"]
    assert newest["baseline"] == report["counterfactual"]["baseline"] == "kube-default"
    assert today["saved_kwh"]["mid"] == pytest.approx(today["meter_kwh"] * share / (1 - share))
    assert today["saved_kwh"]["low"] <= today["saved_kwh"]["mid"] <= today["saved_kwh"]["high"]
    assert found["month"]["saved_kwh"] == today["saved_kwh"]
    assert today["saved_cost"] is not None
    whole, of_report = report["energy"]["namespace"], report["counterfactual"]["saved"]
    share = of_report["share_per_work"]["mid"]
    assert report["saved"]["kwh"]["mid"] == pytest.approx(whole["meter_kwh"] * share / (1 - share))
