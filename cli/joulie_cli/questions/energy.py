"""`joulie energy`: the energy of nodes, pods and plans in a period, from the ledger."""

import argparse
import csv
import sys
import time

import joulie_migrations
from joulie_bus.errors import NotInTheLog
from joulie_cli.display.output import show
from joulie_cli.display.time_arguments import shown, time_of_period
from joulie_cli.questions.cost_export import write_days
from joulie_cli.wiring import Wiring
from joulie_projections.energy.report import (
    BEHIND_S,
    NANO,
    UG_PER_KG,
    By,
    EnergyReport,
    Reading,
    Share,
    Worth,
    as_json,
    kwh,
    worth_json,
)
from joulie_projections.store import database
from joulie_projections.store.energy_table import EnergyTable

SETTINGS = ()
NS_PER_MS = 1_000_000
KINDS = {
    "node": ("node",),
    "plan": ("node",),
    "pod": ("node", "pod"),
    "card": ("node", "card"),
}
SHOWN_LINES = 30
UNKNOWN = "unknown"


def run(args: argparse.Namespace, wires: Wiring) -> int:
    found = _read(args, wires)
    by: By = args.by
    report = found.report(by)
    if args.output in ("csv", "opencost"):
        if args.output == "csv":
            _print_csv(report, by)
        else:
            write_days(found, by, sys.stdout)
        if warning := behind(found):
            print(warning, file=sys.stderr)
    else:
        data = {**as_json(report, by), "position": found.position, "behind_s": found.behind_s}
        text = as_text(report, by, found.position)
        show(args, data, "\n".join([text, *filter(None, [behind(found)])]))
    return 0


def behind(found: Reading) -> str:
    """A warning, if the ledger lacks facts that were committed long ago; else empty."""
    if found.behind_s <= BEHIND_S:
        return ""
    return (
        f"STALE  The ledger lacks facts of the last {found.behind_s:.0f} s. "
        "`joulie status` shows whether it runs; `joulie ledger --once` folds them now."
    )


def _read(args: argparse.Namespace, wires: Wiring) -> Reading:
    now = time.time_ns()
    from_ms = time_of_period(args.first, now) // NS_PER_MS if args.first else 0
    to_ms = (time_of_period(args.last, now) if args.last else now) // NS_PER_MS
    wires.data.require()
    engine = database.reader(wires.data.database)
    try:
        database.require_reachable(engine)
        joulie_migrations.require(engine)
        kinds = KINDS.get(args.by, ("node", "group"))
        found = EnergyTable(engine).between(from_ms, to_ms, kinds)
    finally:
        engine.dispose()
    if not found.intervals:
        raise NotInTheLog(
            "The ledger holds no energy of this time. It is folded by `joulie ledger`, which "
            "`joulie up` and `joulie demo` run; `joulie ledger --once` folds it now."
        )
    return found


def as_text(report: EnergyReport, by: By, position: int) -> str:
    start, end = shown(report.from_ms * NS_PER_MS), shown(report.to_ms * NS_PER_MS)
    complete = shown(report.complete_to_ms * NS_PER_MS)
    lines = [
        f"Energy from {start} to {end}, of a ledger that is complete up to {complete} "
        f"(position {position})",
        f"  meters    {kwh(report.meter_uj):12.3f} kWh, "
        f"of which {kwh(report.modelled_uj):.3f} modelled",
        f"  pods      {kwh(report.pods_uj):12.3f} kWh above idle",
        f"  idle      {kwh(report.idle_uj):12.3f} kWh",
        f"  unknown   {kwh(report.unknown_uj):12.3f} kWh estimated over gaps, in no other figure",
        _cost_line(report),
        _carbon_line(report),
        f"  by {by:<20} {'kWh':>12} {'above idle':>12} {'idle':>12}"
        f" {report.currency or 'cost':>12} {'kgCO2e':>12}",
    ]
    for name, share in list(report.by.items())[:SHOWN_LINES]:
        parts = (share.energy_uj, share.pods_uj, share.idle_uj)
        worth = f" {_cost(share.worth):>12} {_carbon(share.worth):>12}"
        modelled = _modelled(share) if by == "card" else ""
        figures = " ".join(f"{kwh(part):12.3f}" for part in parts)
        lines.append(f"  {name:<23} {figures}{worth}{modelled}")
    if len(report.by) > SHOWN_LINES:
        lines.append(f"  and {len(report.by) - SHOWN_LINES} more; --json or --csv lists all")
    return "\n".join(lines)


def _modelled(share: Share) -> str:
    return f"  {share.modelled_uj / share.energy_uj:.0%} modelled" if share.modelled_uj else ""


def _cost_line(report: EnergyReport) -> str:
    unpriced_uj = report.meter_uj - report.worth.priced_uj
    return (
        f"  cost      {_cost(report.worth):>12} {report.currency or '   '}; "
        f"{kwh(unpriced_uj):.3f} kWh have no price and are not part of it"
    )


def _carbon_line(report: EnergyReport) -> str:
    unweighed_uj = report.meter_uj - report.worth.weighed_uj
    return (
        f"  carbon    {_carbon(report.worth):>12} kgCO2e; "
        f"{kwh(unweighed_uj):.3f} kWh have no carbon intensity and are not part of it"
    )


def _cost(worth: Worth) -> str:
    return f"{worth.cost_n / NANO:.3f}" if worth.priced_uj else UNKNOWN


def _carbon(worth: Worth) -> str:
    return f"{worth.co2_ug / UG_PER_KG:.3f}" if worth.weighed_uj else UNKNOWN


def _print_csv(report: EnergyReport, by: By) -> None:
    out = csv.writer(sys.stdout)
    worth = ("cost", "unpriced_kwh", "kgco2e", "unweighed_kwh")
    modelled = ("modelled_kwh",) if by == "card" else ()
    times = {"from": report.from_ms, "to": report.to_ms, "complete_to": report.complete_to_ms}
    out.writerow((by, "kwh", "pods_kwh", "idle_kwh", *worth, "currency", *modelled, *times))
    for name, share in report.by.items():
        parts = (share.energy_uj, share.pods_uj, share.idle_uj)
        figures = worth_json(share.worth, share.energy_uj)
        known = ("" if value is None else f"{value:.9f}" for value in figures.values())
        last = (report.currency, *(f"{kwh(share.modelled_uj):.9f}" for _ in modelled))
        energy = (f"{kwh(part):.9f}" for part in parts)
        out.writerow((name, *energy, *known, *last, *times.values()))
