"""`joulie plans --next`: what the operator would plan, and which nodes save energy after that."""

import argparse
from collections.abc import Iterator
from typing import Any

import msgspec

from joulie_audit.archive.fact_source import FactSource, newest_plan_facts
from joulie_audit.questions.next_plan import NextPlan, next_plan
from joulie_audit.questions.time_travel import cluster_state_at
from joulie_bus.errors import NotInTheLog
from joulie_bus.events import PlanMade
from joulie_cli.display import plan_changes
from joulie_cli.display.time_arguments import shown
from joulie_cli.log_access.past import archive_of, facts_of, require_facts
from joulie_cli.wiring import Wiring
from joulie_operator.plugins import load_policy
from joulie_projections.history.history import History

_SECOND = 1_000_000_000


async def report_of(args: argparse.Namespace, wires: Wiring) -> dict[str, Any]:
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        view = require_facts(history)
        newest = await _newest_plan(history, facts)
        if newest is None:
            raise NotInTheLog("The operator has made no plan yet, so its settings are unknown.")
        at = history.committed_at(view) or newest.now
        cluster_state = await cluster_state_at(history, facts, view)
        now = at + round(args.next * _SECOND)
        try:
            policy = load_policy(newest.policy)
        except ValueError as error:
            raise NotInTheLog(f"The policy {newest.policy} of {newest.plan}: {error}") from error
        planned = next_plan(newest, cluster_state, policy, view, now)
        return {"settings_of": newest.plan, "at": at, **as_json(planned)}


async def _newest_plan(history: History, facts: FactSource) -> PlanMade | None:
    async for found in newest_plan_facts(history, facts):
        for fact in reversed(found.facts):
            if isinstance(fact.event, PlanMade):
                return fact.event
    return None


def as_json(planned: NextPlan) -> dict[str, Any]:
    made, events = planned.plan.made, planned.plan.events
    return {
        **msgspec.to_builtins(made),
        "events": list(map(plan_changes.as_json, events)),
        "held": planned.plan.held,
        "draining": planned.draining,
        "least_dense_first": planned.least_dense_first,
        "longest_empty_first": planned.longest_empty_first,
    }


def as_text(report: dict[str, Any], most: int) -> str:
    later = (report["now"] - report["at"]) / _SECOND
    until = f"; as if nothing else happened for {later:g} s" if later else ""
    lines = [
        f"The next plan, from the facts up to position {report['view']} ({shown(report['at'])}) "
        f"and the settings of {report['settings_of']}{until}",
        f"  because    {report['because']}",
        *plan_changes.input_lines(report.get("inputs", {})),
        f"  changes    {len(report['events'])}",
        *plan_changes.as_lines(report["events"]),
    ]
    draining = [f"{node} ({pods} left)" for node, pods in report["draining"].items()]
    held = [f"{node} ({why})" for node, why in report["held"].items()]
    since = [
        f"{node} ({max(0, report['at'] - at) // _SECOND} s)"
        for node, at in report["longest_empty_first"].items()
    ]
    lines += _row("draining", draining, most, "eco when their performance pods have ended")
    lines += _row("held", held, most, "not changed yet, and why")
    lines += _row("empty", since, most, "the longest empty ones sleep first, beyond the reserve")
    why = "eco in this order if fewer performance nodes are needed, the least dense first"
    lines += _row("then", report["least_dense_first"], most, why)
    return "\n".join(lines)


def _row(title: str, nodes: list[str], most: int, why: str) -> Iterator[str]:
    if nodes:
        more = ", ..." if len(nodes) > most else ""
        yield f"  {title:<10} {len(nodes)}: {why}"
        yield f"             {', '.join(nodes[:most])}{more}"
