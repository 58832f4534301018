"""`joulie simulate energy`: compares the energy and the completed work of placement policies."""

import argparse
import json
import sys
from collections.abc import Sequence

from joulie_simulator.energy.policies import BASELINE, POLICIES
from joulie_simulator.energy.suites import SEEDS, Row, Size, compat

QUICK = Size(nodes=500, hours=12.0)
HEAD = ("policy", "seed", "kWh", "work kWh", "kWh/work", "dropped", "energy", "work", "per work")


def run(args: argparse.Namespace) -> int:
    chosen = [name for name in args.policies.split(",") if name] or list(POLICIES)
    if unknown := [name for name in chosen if name not in POLICIES]:
        known = ", ".join(POLICIES)
        print(
            f"joulie simulate: {unknown[0]!r} is not a policy. Nothing was simulated. "
            f"--policies takes {known}.",
            file=sys.stderr,
        )
        return 2
    seeds = SEEDS[: 1 if args.quick else args.seeds]
    rows = list(compat(_size(args), seeds, _with_baseline(chosen)))
    print(json.dumps([row._asdict() for row in rows]) if args.json else as_table(rows))
    return 0


def _with_baseline(chosen: Sequence[str]) -> list[str]:
    """Put the baseline first: the others are compared with it."""
    return [BASELINE, *(name for name in chosen if name != BASELINE)]


def _size(args: argparse.Namespace) -> Size:
    usual = QUICK if args.quick else Size()
    return Size(args.nodes or usual.nodes, args.hours or usual.hours)


def as_table(rows: Sequence[Row]) -> str:
    lines = ["{:<20}{:>7}{:>12}{:>12}{:>10}{:>10}{:>9}{:>9}{:>10}".format(*HEAD)]
    base = rows[0]
    for row in rows:
        base = row if row.policy == BASELINE else base
        lines.append(
            f"{row.policy:<20}{row.seed:>7}{row.kwh:>12,.1f}{row.work:>12,.1f}"
            f"{row.kwh_per_work:>10.4f}{row.dropped:>10,}{_change(row.kwh, base.kwh):>9}"
            f"{_change(row.work, base.work):>9}{_change(row.kwh_per_work, base.kwh_per_work):>10}"
        )
    return "\n".join(lines)


def _change(value: float, base: float) -> str:
    return f"{100 * (value / base - 1):+.2f} %" if base else "-"
