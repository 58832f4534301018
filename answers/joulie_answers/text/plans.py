"""Plans and their transitions, one a line, newest first."""

from joulie_answers.schema.responses import PlanEntry, PlanList, Transition
from joulie_answers.text.tables import cell, table
from joulie_answers.text.times import shown

_HEAD = ("POSITION", "AT", "PLAN", "NODE", "WHAT", "BECAUSE")


def plans_text(found: PlanList) -> str:
    return "\n".join(table(_HEAD, [_row(item) for item in found.items]))


def _row(item: PlanEntry) -> list[str]:
    at = (str(item.position), shown(item.at_ms))
    if isinstance(move := item.transition, Transition):
        what = f"{move.kind} {move.to}".strip()
        return [*at, *map(cell, (move.plan, move.node, what, move.because))]
    plan = item.plan
    assert plan
    what = f"{plan.changes} changes by {plan.policy}"
    return [*at, *map(cell, (plan.plan, "", what, plan.because))]
