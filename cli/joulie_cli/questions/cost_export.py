"""Energy and its cost by day, with the names of OpenCost's allocations, as CSV."""

import csv
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TextIO

from joulie_projections.energy.intervals import Interval, start_of
from joulie_projections.energy.report import (
    NOT_ON_CARDS,
    NOT_SHARED,
    By,
    Reading,
    Share,
    kwh,
    worth_json,
)

# The first columns are OpenCost's; energy and carbon have no column there.
COLUMNS = (
    *("name", "start", "end", "totalCost", "currency"),
    *("energyKwh", "unpricedKwh", "carbonKgCo2e", "unweighedKwh"),
)
IDLE = "__idle__"  # as OpenCost names what nothing is allocated to


def write_days(found: Reading, by: By, out: TextIO) -> None:
    """One line per day (UTC) and name. A cost that is not known is empty, never 0."""
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    ordered = sorted(found.intervals, key=lambda interval: interval.start_ms)
    for _, intervals in groupby(ordered, lambda each: start_of("day", each.start_ms)):
        writer.writerows(_lines(found, list(intervals), by))


def _lines(found: Reading, intervals: Sequence[Interval], by: By) -> Iterator[Sequence[str]]:
    report = found._replace(intervals=intervals).report(by)
    times = _time(report.from_ms), _time(report.to_ms)
    for name, share in report.by.items():
        shown = IDLE if name in (NOT_SHARED, NOT_ON_CARDS) else name
        cost, *others = _figures(share)
        yield (shown, *times, cost, report.currency, *others)


def _figures(share: Share) -> tuple[str, ...]:
    worth = worth_json(share.worth, share.energy_uj)
    known = ("cost", "unpriced_kwh", "kgco2e", "unweighed_kwh")
    cost, *others = ("" if worth[key] is None else f"{worth[key]:.9f}" for key in known)
    return (cost, f"{kwh(share.energy_uj):.9f}", *others)


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
