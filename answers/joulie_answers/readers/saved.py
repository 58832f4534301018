"""What was saved in a period: the metered energy of each day by the report of that day.

The one figure for a saving, on every page. What a report itself simulates is another one.
"""

from datetime import UTC, datetime

from joulie_answers.readers.savings import range_of, savings_of
from joulie_answers.schema import responses
from joulie_projections.energy.intervals import start_of
from joulie_projections.energy.report import EnergyReport, Reading, kwh, worth_json
from joulie_projections.energy.savings import Period, SavedInPeriod, saved_on
from joulie_projections.store.energy_table import EnergyTable

MS_PER_SECOND = 1000
METERS = ("node",)


def saved_now(table: EnergyTable, stamp: responses.Stamp, now_ms: int) -> responses.Saved:
    newest = table.savings()
    day_ms, month_ms = _midnight(now_ms), _midnight(now_ms, first_of_month=True)
    by_day = table.savings_by_day(month_ms, now_ms)
    month = table.between(month_ms, now_ms, METERS)
    days = {start_of("day", each.start_ms) for each in month.intervals} | {day_ms}
    reports = {day: _of_day(month, day) for day in sorted(days)}
    periods = {day: _compared(found, day) for day, found in reports.items()}
    today = saved_on([periods[day_ms]], by_day, newest)
    whole = saved_on(list(periods.values()), by_day, newest)
    of_month = month.report("node")
    return responses.Saved(
        **stamp,
        folded_to=month.position,
        complete_to_ms=month.complete_to_ms,
        ledger_behind_ms=round(month.behind_s * MS_PER_SECOND),
        currency=of_month.currency,
        today=_period(reports[day_ms], day_ms, today),
        month=_period(of_month, month_ms, whole),
        report=savings_of(by_day.get(day_ms, newest)),
    )


def saved_of(table: EnergyTable, found: Reading) -> responses.SavedPeriod | None:
    """Of the energy of a reading; None if it has none."""
    if not found.intervals:
        return None
    whole = found.report("node")
    by_day = table.savings_by_day(start_of("day", whole.from_ms), whole.to_ms)
    days = sorted({start_of("day", each.start_ms) for each in found.intervals})
    periods = [_compared(_of_day(found, day), day) for day in days]
    return _period(whole, whole.from_ms, saved_on(periods, by_day, table.savings()))


def _of_day(month: Reading, day_ms: int) -> EnergyReport:
    """Intervals of a day or less do not cross midnight."""
    own = [each for each in month.intervals if start_of("day", each.start_ms) == day_ms]
    return month._replace(intervals=own).report("node")


def _compared(found: EnergyReport, start_ms: int) -> Period:
    meter_kwh = kwh(found.meter_uj)
    worth = worth_json(found.worth, found.meter_uj)
    end_ms = max(start_ms, found.to_ms)
    return Period(start_ms, end_ms, meter_kwh, worth["cost"], worth["kgco2e"])


def _midnight(now_ms: int, *, first_of_month: bool = False) -> int:
    """UTC: the days of the ledger are."""
    day = datetime.fromtimestamp(now_ms / MS_PER_SECOND, UTC)
    start = day.replace(hour=0, minute=0, second=0, microsecond=0)
    start = start.replace(day=1) if first_of_month else start
    return int(start.timestamp()) * MS_PER_SECOND


def _period(found: EnergyReport, start_ms: int, saved: SavedInPeriod) -> responses.SavedPeriod:
    if not found.to_ms:  # it rests on no interval
        return _not_held(start_ms, saved.why)
    worth = worth_json(found.worth, found.meter_uj)
    return responses.SavedPeriod(
        from_ms=start_ms,
        to_ms=max(start_ms, found.to_ms),
        meter_kwh=kwh(found.meter_uj),
        unpriced_kwh=worth["unpriced_kwh"],
        unweighed_kwh=worth["unweighed_kwh"],
        uncompared_kwh=saved.uncompared_kwh,
        saved_kwh=range_of(saved.kwh),
        saved_cost=range_of(saved.cost),
        saved_kgco2e=range_of(saved.kgco2e),
        why=saved.why,
    )


def _not_held(start_ms: int, why: str) -> responses.SavedPeriod:
    nothing: dict[str, None] = dict.fromkeys(
        ("meter_kwh", "unpriced_kwh", "unweighed_kwh", "uncompared_kwh")
    )
    worth: dict[str, None] = dict.fromkeys(("saved_kwh", "saved_cost", "saved_kgco2e"))
    return responses.SavedPeriod(from_ms=start_ms, to_ms=start_ms, why=why, **nothing, **worth)
