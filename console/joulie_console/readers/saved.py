"""What was saved today and this month: metered energy by the newest report."""

from datetime import UTC, datetime
from typing import Any

from joulie_console.readers.savings import range_of, savings_of
from joulie_console.schema import responses
from joulie_projections.energy.report import EnergyReport, kwh, worth_json
from joulie_projections.energy.savings import Period, Savings, saved_in
from joulie_projections.store.energy_table import EnergyTable

MS_PER_SECOND = 1000
METERS = ("node",)


def saved_now(table: EnergyTable, stamp: dict[str, Any], now_ms: int) -> responses.Saved:
    newest = table.savings()
    day_ms, month_ms = _midnight(now_ms), _midnight(now_ms, first_of_month=True)
    month = table.between(month_ms, now_ms, METERS)
    today = month._replace(intervals=[each for each in month.intervals if each.start_ms >= day_ms])
    reports = [reading.report("node") for reading in (today, month)]
    return responses.Saved(
        **stamp,
        folded_to=month.position,
        complete_to_ms=month.complete_to_ms,
        ledger_behind_ms=round(month.behind_s * MS_PER_SECOND),
        currency=reports[1].currency,
        today=_period(reports[0], day_ms, newest),
        month=_period(reports[1], month_ms, newest),
        report=savings_of(newest),
    )


def _midnight(now_ms: int, *, first_of_month: bool = False) -> int:
    """UTC: the days of the ledger are."""
    day = datetime.fromtimestamp(now_ms / MS_PER_SECOND, UTC)
    start = day.replace(hour=0, minute=0, second=0, microsecond=0)
    start = start.replace(day=1) if first_of_month else start
    return int(start.timestamp()) * MS_PER_SECOND


def _period(found: EnergyReport, start_ms: int, newest: Savings | None) -> responses.SavedPeriod:
    meter_kwh = kwh(found.meter_uj)
    worth = worth_json(found.worth, found.meter_uj)
    end_ms = max(start_ms, found.to_ms)
    saved = saved_in(Period(start_ms, end_ms, meter_kwh, worth["cost"], worth["kgco2e"]), newest)
    return responses.SavedPeriod(
        from_ms=start_ms,
        to_ms=end_ms,
        meter_kwh=meter_kwh,
        unpriced_kwh=worth["unpriced_kwh"],
        unweighed_kwh=worth["unweighed_kwh"],
        saved_kwh=range_of(saved.kwh),
        saved_cost=range_of(saved.cost),
        saved_kgco2e=range_of(saved.kgco2e),
        why=saved.why,
    )
