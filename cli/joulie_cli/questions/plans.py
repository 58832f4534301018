"""`joulie plans`: lists the operator's plans; `joulie explain plan` shows one in full."""

import argparse
import asyncio
from collections import Counter
from typing import Any

import msgspec

from joulie_audit.archive.fact_source import PlanFact, plan_facts
from joulie_bus.events import PlanMade
from joulie_cli.display import plan_changes
from joulie_cli.display.output import show
from joulie_cli.display.time_arguments import shown
from joulie_cli.log_access.past import ArchivePlace, archive_of, facts_of, require_facts
from joulie_cli.questions import next_plan
from joulie_cli.wiring import Wiring

SETTINGS = (ArchivePlace,)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    if args.next is not None:
        report = asyncio.run(next_plan.report_of(args, wires))
        show(args, report, next_plan.as_text(report, args.limit))
        return 0
    plans = asyncio.run(_plans(args, wires))
    newest = plans[-args.limit :]
    show(args, newest, as_text(newest, len(plans)))
    return 0


async def _plans(args: argparse.Namespace, wires: Wiring) -> list[dict[str, Any]]:
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        require_facts(history)
        found = [fact async for fact in plan_facts(history, facts)]
    return [plan for plan in grouped(found) if plan["changes"] or args.all]


def grouped(found: list[PlanFact]) -> list[dict[str, Any]]:
    """Plans with their changes; a plan that was published in parts counts once."""
    plans: dict[str, dict[str, Any]] = {}
    for fact in found:
        event = fact.event
        if isinstance(event, PlanMade):
            head = {"position": fact.position, "at": fact.at, **msgspec.to_builtins(event)}
            plans.setdefault(event.plan, {**head, "changes": event.changes, "events": []})
        elif event.plan in plans:
            plans[event.plan]["events"].append(plan_changes.as_json(event))
    return list(plans.values())


def as_text(plans: list[dict[str, Any]], of: int) -> str:
    if not plans:
        return "No plan has changed anything yet. --all lists plans without changes too."
    lines = [f"{len(plans)} of {of} plans, the newest last"]
    for plan in plans:
        kinds = Counter(event["type"].removeprefix("plan.") for event in plan["events"])
        what = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        lines.append(
            f"{plan['position']:>9}  {shown(plan['at'])}  {plan['plan']:<8} "
            f"{plan['because']}: {what or 'no change'}"
        )
    return "\n".join(lines)
