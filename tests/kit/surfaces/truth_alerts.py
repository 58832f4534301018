"""Which alerts fire, by promtool, if the metrics of some seconds go on as they ended."""

import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from operator import lt
from pathlib import Path

from kube_real import PROMTOOL, program
from recorded_metrics import GROWS, RULES

HOURS = 3  # the longest `for` is two hours
# What is wrong when a component stands still, by the rules that name it.
NAMED_BY: Mapping[str, set[str]] = {
    "projector": {"JoulieViewOld", "JoulieViewBehind", "JoulieLagging", "JoulieLedgerBehind"},
    "nats-server": {
        *("JoulieBrokerSilent", "JoulieViewOld", "JoulieViewBehind", "JoulieLagging"),
        *("JoulieDecisionsNotShipped", "JoulieLedgerBehind", "JouliePlansStopped"),
        "JouliePublishRefused",
    },
    "ledger": {"JoulieLedgerBehind"},
    "extender": {"JoulieAnswersSlow"},
}
OF_AGES = frozenset[str]().union(*NAMED_BY.values())
OF_ALL = {"JoulieComponentDown", "JoulieComponentMissing"}
WITHOUT_PLANS = {"projector", "nats-server", "operator"}
NO_PLANS = "JoulieNoPlans"
PLANS_S = 30.0  # a demo plans each ten seconds at least; a shorter time shows no lack of plans
TRUE_OF_A_DEMO = {"JoulieNoArchive"}
PLANTED = ("extender", "joulie_view_age_seconds", 60.0, "JoulieViewOld")  # a lie, and its alert
RISING_S = 10.0  # what rises for so long goes on; some ages fall again each five seconds
GONE = 5  # scrapes without an answer, after which a component counts as gone
Gauges = Mapping[str, Mapping[str, float]]  # by component


class Scrapes:
    """The metrics of all components, once a second."""

    def __init__(self) -> None:
        self._found: list[tuple[float, Gauges]] = []

    def add(self, gauges: Gauges) -> None:
        self._found.append((time.monotonic(), gauges))

    def since(self, moment: float) -> list[tuple[float, Gauges]]:
        return [each for each in self._found if each[0] >= moment]


def firing(found: Sequence[tuple[float, Gauges]], place: Path) -> set[str]:
    """The alerts that fire within hours, if what rises goes on to rise, and all else stays."""
    keys = {(part, name) for _, gauges in found for part in gauges for name in gauges[part]}
    series = [
        {"series": _labelled(name, part), "values": values}
        for part, name in sorted(keys)
        if (values := _values(found, part, name))
    ]
    test = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": f'group by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}'
                f"[{HOURS}h]))",
                "eval_time": f"{HOURS}h",
                "exp_samples": [],
            }
        ],
    }
    file = place / "alerts-test.json"
    tree = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    file.write_text(json.dumps(tree))
    command = [str(program(PROMTOOL)), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    names = set(re.findall(r'alertname="(\w+)"', done.stdout + done.stderr))
    assert done.returncode == 0 or names, done.stdout + done.stderr
    return names


def reasons(stopped: str = "") -> set[str]:
    """The alerts that may fire while a component is stopped; without one, none."""
    if not stopped:
        return set()
    plans = {NO_PLANS} if stopped in WITHOUT_PLANS else set[str]()
    ends = set[str]() if stopped == "nats-server" else OF_ALL  # it has no metrics
    return {*NAMED_BY.get(stopped, ()), *ends, *plans}


def shows_plans(found: Sequence[tuple[float, Gauges]]) -> bool:
    """Whether the time is long enough for a plan to come."""
    return found[-1][0] - found[0][0] >= PLANS_S


def with_lie(found: Sequence[tuple[float, Gauges]]) -> list[tuple[float, Gauges]]:
    part, name, value, _ = PLANTED
    return [(at, {**gauges, part: {**gauges[part], name: value}}) for at, gauges in found]


def _labelled(name: str, part: str) -> str:
    metric, _, labels = name.removesuffix("}").partition("{")
    inside = ",".join(filter(None, [labels, f'instance="{part}"']))
    return f"{metric}{{{inside}}}"


def _values(found: Sequence[tuple[float, Gauges]], part: str, name: str) -> str:
    """A component that does not answer at the end has no samples after ten minutes."""
    known = [(at, gauges[part][name]) for at, gauges in found if name in gauges.get(part, {})]
    if not any(part in gauges and gauges[part] for _, gauges in found[-GONE:]):
        return f"{known[-1][1]!r}x9"
    if not any(name in gauges.get(part, {}) for _, gauges in found[-GONE:]):
        return ""
    (began, first), (ended, last) = known[0], known[-1]
    values = [value for _, value in known]
    rises = name.partition("{")[0].endswith(GROWS) or (
        ended - began >= RISING_S and all(map(lt, values, values[1:]))
    )
    a_minute = 60 * (last - first) / (ended - began) if rises and len(values) > 2 else 0.0
    return f"{last!r}+{a_minute:f}x{HOURS * 60}"
