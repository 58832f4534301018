"""`joulie plans`: lists the operator's plans; `joulie explain plan` shows one in full."""

import argparse
import asyncio
from collections import Counter
from typing import Any

import msgspec

from joulie_audit.archive.fact_source import NewestPlans, PlanFact, newest_plan_facts
from joulie_bus.events import PlanMade
from joulie_cli.display import plan_changes
from joulie_cli.display.output import show
from joulie_cli.display.time_arguments import shown
from joulie_cli.log_access.past import ArchivePlace, archive_of, facts_of, require_facts
from joulie_cli.questions import next_plan
from joulie_cli.reporting import defragment
from joulie_cli.wiring import Wiring
from joulie_projections.catalog_file import CatalogSettings

SETTINGS = (ArchivePlace, CatalogSettings)


def run(args: argparse.Namespace, wires: Wiring) -> int:
    if args.defragment:
        moves = defragment.report_of(args, wires)
        show(args, moves, defragment.as_text(moves, args.limit))
        return 0
    if args.next is not None:
        report = asyncio.run(next_plan.report_of(args, wires))
        show(args, report, next_plan.as_text(report, args.limit))
        return 0
    newest = asyncio.run(_plans(args, wires))
    show(args, newest, as_text(newest))
    return 0


async def _plans(args: argparse.Namespace, wires: Wiring) -> list[dict[str, Any]]:
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        require_facts(history)
        shown_plans = list[dict[str, Any]]()
        async for newest in newest_plan_facts(history, facts):
            plans = whole_plans(newest)
            shown_plans = [plan for plan in plans if plan["changes"] or args.all]
            if len(shown_plans) >= args.limit:
                break
    return shown_plans[-args.limit :]


def whole_plans(newest: NewestPlans) -> list[dict[str, Any]]:
    """The plans of which every event was read."""
    return grouped(newest.facts)[0 if newest.is_all else 1 :]


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


def as_text(plans: list[dict[str, Any]]) -> str:
    if not plans:
        return "No plan has changed anything yet. --all lists plans without changes too."
    lines = [f"{len(plans)} plan{'' if len(plans) == 1 else 's'}, the newest last"]
    for plan in plans:
        kinds = Counter(event["type"].removeprefix("plan.") for event in plan["events"])
        what = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        lines.append(
            f"{plan['position']:>9}  {shown(plan['at'])}  {plan['plan']:<8} "
            f"{plan['because']}: {what or 'no change'}"
        )
    return "\n".join(lines)
