"""Runs the alert rules of the chart by promtool, over the recorded idle hour and planted faults."""

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kube_real import PROMTOOL, program
from recorded_metrics import RULES, Series, Value

Tree = dict[str, object]


class Scrapes(NamedTuple):
    interval_s: int
    phase_s: int
    hours: int

    @property
    def minutes(self) -> int:
        return self.hours * 60

    @property
    def seconds(self) -> Iterable[int]:
        return range(self.phase_s, self.hours * 3600, self.interval_s)


def of_series(series: Series, scrapes: Scrapes) -> Tree:
    values = [series.at(second) for second in scrapes.seconds]
    return {"series": series.key, "values": " ".join(_notation(values))}


def _notation(values: Sequence[Value]) -> Iterator[str]:
    """As promtool reads them: `5x3` is 5 and three more, `_x3` is absent three times. A scrape
    without a series that the one before had ends it, which Prometheus marks as stale."""
    began = 0
    for at, value in enumerate(values):
        if at + 1 == len(values) or values[at + 1] != value:
            times = at + 1 - began
            yield _absent(times, ends=began > 0) if value is None else f"{value!r}x{times - 1}"
            began = at + 1


def _absent(times: int, *, ends: bool) -> str:
    if not ends:
        return f"_x{times}"
    return f"stale _x{times - 1}" if times > 1 else "stale"


def quiet(series: Sequence[Series], scrapes: Scrapes) -> Tree:
    """That no alert fires."""
    return _test(scrapes, [of_series(each, scrapes) for each in series], None)


def faulty(
    series: Sequence[Series], scrapes: Scrapes, alert: str, fault: Mapping[str, str]
) -> Tree:
    """That an alert fires: `fault` has the values of series in promtool's notation, by key."""
    return _test(scrapes, _planted(series, scrapes, fault), alert)


def fired(
    series: Sequence[Series], scrapes: Scrapes, fault: Mapping[str, str], place: Path
) -> set[str]:
    """The alerts that fire with a fault."""
    said = complaints([_test(scrapes, _planted(series, scrapes, fault), None)], place)
    return set(re.findall(r'alertname="(\w+)"', said))


def _planted(
    series: Sequence[Series], scrapes: Scrapes, fault: Mapping[str, str]
) -> Sequence[Tree]:
    kept = [of_series(each, scrapes) for each in series if each.key not in fault]
    planted: list[Tree] = [
        {"series": key, "values": values} for key, values in fault.items() if values
    ]
    return [*kept, *planted]


def _test(scrapes: Scrapes, series: Sequence[Tree], alert: str | None) -> Tree:
    expected: list[Tree] = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
    named = f'alertname="{alert}",' if alert else ""
    fired = f'count_over_time(ALERTS{{{named}alertstate="firing"}}[{scrapes.minutes}m])'
    return {
        "name": f"{alert or 'idle'}, every {scrapes.interval_s} s from {scrapes.phase_s} s on",
        "interval": f"{scrapes.interval_s}s",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": f"group by (alertname) ({fired})",
                "eval_time": f"{scrapes.minutes}m",
                "exp_samples": expected,
            }
        ],
    }


def complaints(tests: Sequence[Tree], place: Path, rules: Path = RULES) -> str:
    """What promtool found wrong; empty if nothing."""
    file = place / "rules-test.json"  # JSON is YAML
    tree = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": list(tests)}
    file.write_text(json.dumps(tree))
    command = [str(program(PROMTOOL)), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr
