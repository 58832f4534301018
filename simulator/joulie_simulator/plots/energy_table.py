"""The table of `joulie simulate energy`: means over seeds, compared with a baseline."""

import math
from collections.abc import Sequence
from statistics import mean, stdev

from joulie_simulator.energy.suites import Row
from joulie_simulator.energy.switching.conditions import baseline_of

HEAD = (
    "conditions", "load", "policy", "sleep", "kWh", "work kWh", "kWh/work", "kWh/work vs baseline",
    "work", "dropped", "wait p50", "wait p99", "p99 of perf.", "longest", "longest of perf.",
    "wakes", "boot kWh", "lost", "restarts",
)  # fmt: skip
KEYS = HEAD[:4]  # name a row
EQUAL_WORK = 0.005  # the share of work that may be missing where jobs wait in a queue
# Two-sided 95 % quantiles of Student's t for 1 to 7 degrees of freedom.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365)

Line = tuple[str, ...]


def of(rows: Sequence[Row], baseline: str) -> tuple[Line, list[Line]]:
    """The titles and the lines. Without the conditions where all rows have the usual ones."""
    groups: dict[tuple[str | float, str, bool, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.load, row.policy, row.sleep, row.conditions), []).append(row)
    first = 0 if len({row.conditions for row in rows}) > 1 else 1
    lines = [
        _cells(group, groups[load, baseline, False, baseline_of(conditions)])
        for (load, *_, conditions), group in groups.items()
    ]
    return HEAD[first:], [line[first:] for line in lines]


def _cells(group: list[Row], base: list[Row]) -> Line:
    first = group[0]
    return (
        first.conditions,
        str(first.load),
        first.policy,
        "on" if first.sleep else "off",
        f"{mean(row.kwh for row in group):,.1f}",
        f"{mean(row.work for row in group):,.1f}",
        f"{mean(row.kwh_per_work for row in group):.4f}",
        compared(group, base),
        f"{100 * _work_change(group, base):+.2f} %",
        f"{mean(row.dropped for row in group):,.0f}",
        f"{mean(row.wait_p50_s for row in group):,.0f} s",
        f"{mean(row.wait_p99_s for row in group):,.0f} s",
        f"{mean(row.wait_p99_performance_s for row in group):,.0f} s",
        f"{max(row.wait_max_s for row in group):,.0f} s",
        f"{max(row.wait_max_performance_s for row in group):,.0f} s",
        f"{mean(row.wakes for row in group):,.0f}",
        f"{mean(row.boot_kwh for row in group):,.1f}",
        f"{mean(row.lost for row in group):,.1f}",
        f"{mean(row.restarts for row in group):,.0f}",
    )


def compared(group: Sequence[Row], base: Sequence[Row]) -> str:
    """The mean change of energy per work, seed by seed, with its 95 % interval.

    With a queue a policy that does less work than the baseline gets no figure: a policy that
    refuses jobs would save energy.
    """
    if group[0].suite != "compat" and _work_change(group, base) < -EQUAL_WORK:
        return "less work"
    changes = [
        100 * (row.kwh_per_work / other.kwh_per_work - 1) if other.kwh_per_work else 0.0
        for row, other in zip(group, base, strict=True)
    ]
    if len(changes) < 2:
        return f"{changes[0]:+.2f} %"
    half = T_95[len(changes) - 2] * stdev(changes) / math.sqrt(len(changes))
    return f"{mean(changes):+.2f} +- {half:.2f} %"


def _work_change(group: Sequence[Row], base: Sequence[Row]) -> float:
    before = sum(row.work for row in base)
    return sum(row.work for row in group) / before - 1 if before else 0.0
