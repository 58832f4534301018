"""The energy of a period: for people, and as CSV for spreadsheets and for OpenCost."""

import csv
import io
from collections.abc import Iterable, Iterator

from joulie_answers.schema.responses import Energy, EnergyShare
from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_bus.core.times import rfc3339, utc_text
from joulie_projections.energy.report import BEHIND_S, NOT_ON_CARDS, NOT_SHARED

SHOWN_LINES = 30
UNKNOWN = "unknown"
# The first columns are OpenCost's; energy and carbon have no column there.
OPENCOST = (
    *("name", "start", "end", "totalCost", "currency"),
    *("energyKwh", "unpricedKwh", "carbonKgCo2e", "unweighedKwh"),
)
IDLE = "__idle__"  # as OpenCost names what nothing is allocated to


def energy_text(found: Energy) -> str:
    if found.meter_kwh is None:
        return "\n".join(filter(None, [_nothing_held(found), behind_text(found)]))
    start, end, complete = map(utc_text, (found.from_ms, found.to_ms, found.complete_to_ms))
    cost, carbon = _figure(found.cost), _figure(found.kgco2e)
    lines: list[str | TextTable] = [
        f"Energy from {start} to {end}, of a ledger that is complete up to {complete} "
        f"(position {found.folded_to})",
        f"  meters    {found.meter_kwh:12.3f} kWh, of which {found.modelled_kwh:.3f} modelled",
        f"  pods      {found.pods_kwh:12.3f} kWh above idle",
        f"  idle      {found.idle_kwh:12.3f} kWh",
        f"  unknown   {found.unknown_kwh:12.3f} kWh estimated over gaps, in no other figure",
        f"  cost      {cost:>12} {found.currency or '   '}; {found.unpriced_kwh:.3f} kWh "
        "have no price and are not part of it",
        f"  carbon    {carbon:>12} kgCO2e; {found.unweighed_kwh:.3f} kWh "
        "have no carbon intensity and are not part of it",
        _shares(found),
    ]
    if len(found.items) > SHOWN_LINES:
        lines.append(f"  and {len(found.items) - SHOWN_LINES} more; -o json or -o csv lists all")
    return TextWithTables.of([*lines, *filter(None, [behind_text(found)])])


def _nothing_held(found: Energy) -> str:
    if not found.complete_to_ms:
        return "The ledger holds no energy of this period: it has folded no reading yet"
    complete = f"complete up to {utc_text(found.complete_to_ms)} (position {found.folded_to})"
    return f"The ledger holds no energy of this period; it is {complete}"


def behind_text(found: Energy) -> str:
    """A warning, if the ledger lacks facts that were committed long ago; else empty."""
    behind_s = found.ledger_behind_ms / 1000
    if behind_s <= BEHIND_S:
        return ""
    return (
        f"STALE  The ledger lacks facts of the last {behind_s:.0f} s. "
        "`joulie status` shows whether it runs; `joulie ledger --once` folds them now."
    )


def _shares(found: Energy) -> TextTable:
    shown = found.items[:SHOWN_LINES]
    heads = ("kWh", "above idle", "idle", found.currency or "cost", "kgCO2e")
    is_modelled = any(share.modelled_kwh for share in shown)
    rows = [
        (share.name, *_figures(share), *([_modelled(share)] if is_modelled else ()))
        for share in shown
    ]
    head = (f"by {found.by}", *heads, *(["modelled"] if is_modelled else ()))
    return TextTable(head, rows, {*heads, "modelled"}, indent=2)


def _figures(share: EnergyShare) -> list[str]:
    return [*map(_figure, (share.kwh, share.pods_kwh, share.idle_kwh, share.cost, share.kgco2e))]


def _modelled(share: EnergyShare) -> str:
    return f"{share.modelled_kwh / share.kwh:.0%}" if share.modelled_kwh else ""


def _figure(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3f}"


def energy_csv(found: Energy) -> str:
    worth = ("cost", "unpriced_kwh", "kgco2e", "unweighed_kwh")
    modelled = ("modelled_kwh",) if found.by == "card" else ()
    times = {"from": found.from_ms, "to": found.to_ms, "complete_to": found.complete_to_ms}
    period = [rfc3339(ms) for ms in times.values()]
    rows = [
        (
            *(share.name, *_cells(share, ("kwh", "pods_kwh", "idle_kwh", *worth))),
            *(found.currency, *_cells(share, modelled), *period),
        )
        for share in found.items
    ]
    head = (found.by, "kwh", "pods_kwh", "idle_kwh", *worth, "currency", *modelled, *times)
    return _csv([head, *rows])


def opencost_csv(days: Iterable[Energy]) -> str:
    """One line per day (UTC) and name. A cost that is not known is empty, never 0."""
    return _csv([OPENCOST, *(line for day in days for line in _opencost_lines(day))])


def _opencost_lines(day: Energy) -> Iterator[tuple[str, ...]]:
    for share in day.items:
        name = IDLE if share.name in (NOT_SHARED, NOT_ON_CARDS) else share.name
        [cost] = _cells(share, ("cost",))
        figures = _cells(share, ("kwh", "unpriced_kwh", "kgco2e", "unweighed_kwh"))
        yield (name, rfc3339(day.from_ms), rfc3339(day.to_ms), cost, day.currency, *figures)


def _cells(share: EnergyShare, names: Iterable[str]) -> list[str]:
    values = [getattr(share, name) for name in names]
    return ["" if value is None else f"{value:.9f}" for value in values]


def _csv(rows: Iterable[Iterable[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().rstrip("\n")
