"""`joulie explain`: why a pod was placed where it is; also `node NAME` and `plan ID|POSITION`."""

import argparse
import asyncio
from typing import Any

from joulie_audit.archive.fact_source import newest_plan_facts
from joulie_audit.questions.explain import similar_names
from joulie_audit.questions.time_travel import NodeChange, node_changes
from joulie_bus.errors import NotInTheLog
from joulie_cli.asking import questions
from joulie_cli.asking.sources import SETTINGS, asked
from joulie_cli.display import plan_changes
from joulie_cli.display.output import show
from joulie_cli.display.time_arguments import shown
from joulie_cli.log_access.past import archive_of, facts_of, require_facts
from joulie_cli.questions import plans
from joulie_cli.wiring import Wiring

__all__ = ["SETTINGS", "run"]
SHOWN_STEPS = 20
UNNAMED = {
    "node": "`joulie explain node NAME` explains a node",
    "plan": "`joulie explain plan ID` explains a plan, and `joulie plans` lists them",
}


def run(args: argparse.Namespace, wires: Wiring) -> int:
    match args.what:
        case ["node" | "plan" as what, _] if args.server:
            raise NotInTheLog(
                f"`joulie explain {what}` reads the local data only. Nothing was asked. Leave "
                "--server out, or ask it with `joulie explain POD`."
            )
        case ["node", name]:
            return _print(args, asyncio.run(_node(args, wires, name)), _node_text)
        case ["plan", which]:
            return _print(args, asyncio.run(_plan(args, wires, which)), _plan_text)
        case ["node" | "plan" as what]:
            raise NotInTheLog(
                f"Nothing to explain. {UNNAMED[what]}. A pod of this name is `explain pod {what}`."
            )
        case [pod] | ["pod", pod]:
            args.what = [pod]
            return asked(args, wires, questions.pod)
        case _:
            raise NotInTheLog(
                "Nothing to explain. Give a pod (namespace/name or uid), `node NAME` or `plan ID`."
            )


def _print(args: argparse.Namespace, report: dict[str, Any], text: Any) -> int:
    show(args, report, text(report))
    return 0


# --- a node, a plan ---------------------------------------------------------------------------


async def _node(args: argparse.Namespace, wires: Wiring, name: str) -> dict[str, Any]:
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        require_facts(history)
        steps = await node_changes(history, facts, name)
        names = history.row_names().nodes()
        if not steps and name not in names:
            known = similar_names(name, names)
            raise NotInTheLog(f"There is no node {name!r}. Known are {known}.")
        return {"node": name, "steps": [step._asdict() for step in steps[-SHOWN_STEPS:]]}


def _node_text(report: dict[str, Any]) -> str:
    steps = [NodeChange(**step) for step in report["steps"]]
    if not steps:
        return f"{report['node']}: no plan has changed it."
    lines = [f"{report['node']}: its last {len(steps)} steps"]
    lines += [f"{s.position:>9}  {shown(s.at)}  {s.what}\n{'':>11}{s.because}" for s in steps]
    return "\n".join(lines)


async def _plan(args: argparse.Namespace, wires: Wiring, which: str) -> dict[str, Any]:
    async with facts_of(wires, archive_of(args, wires)) as (history, facts):
        require_facts(history)
        explanation = list[dict[str, Any]]()
        async for found in newest_plan_facts(history, facts):
            explanation = plans.whole_plans(found)
            for plan in explanation:
                if which in (plan["plan"], str(plan["position"])):
                    return plan
    newest = ", ".join(plan["plan"] for plan in explanation[-3:]) or "none"
    raise NotInTheLog(f"There is no plan {which!r}. The newest are {newest}; see `joulie plans`.")


def _plan_text(plan: dict[str, Any]) -> str:
    lines = [
        f"{plan['plan']}   {shown(plan['at'])}   position {plan['position']}",
        f"  because    {plan['because']}",
        f"  looked at  position {plan['view']}: {plan['nodes']} nodes",
        *plan_changes.input_lines(plan.get("inputs", {})),
        f"  changes    {len(plan['events'])}",
        *plan_changes.as_lines(plan["events"]),
    ]
    return "\n".join(lines)
