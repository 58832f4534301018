"""Plans and their transitions, one a line, newest first; and one plan in full."""

from collections.abc import Iterator, Mapping, Sequence

from joulie_answers.schema.responses import (
    NextPlan,
    PlanDetail,
    PlanEntry,
    PlanList,
    PowerShare,
    Transition,
)
from joulie_answers.text.tables import TextTable, TextWithTables, cell
from joulie_bus.core.times import utc_text

_HEAD = ("POSITION", "AT", "PLAN", "WHAT")
MOST_RACKS = 20


def plans_text(found: PlanList, node: str = "") -> str:
    """`node`: the one that was asked for; empty: all."""
    if not found.items:
        what = f"the node {node}" if node else "anything"
        return f"No plan has changed {what} yet. --all lists plans without changes too."
    return TextWithTables.of([TextTable(_HEAD, [_row(item) for item in found.items])])


def _row(item: PlanEntry) -> list[str]:
    found = item.transition or item.plan
    assert found
    return [str(item.position), utc_text(item.at_ms), *map(cell, (found.plan, found.text))]


def plan_text(found: PlanDetail) -> str:
    plan = found.plan
    return TextWithTables.of(
        [
            f"{plan.plan}   {utc_text(found.made_at_ms)}   position {found.made_position}",
            f"  because    {plan.because}",
            f"  looked at  position {plan.view}: {plan.nodes} nodes",
            *input_lines(found.inputs, found.shares),
            f"  changes    {len(found.transitions)}",
            *_changes(found.transitions),
        ]
    )


def input_lines(inputs: Mapping[str, float], shares: Sequence[PowerShare]) -> Iterator[str]:
    """The inputs of a plan, and how its power targets are divided: one line for each rack."""
    yield "  inputs     " + ", ".join(f"{name} {value:.12g}" for name, value in inputs.items())
    for share in shares[:MOST_RACKS]:
        rack = f"rack {share.rack}" if share.rack else "no rack"
        drawn, given = share.drawn_w / 1000, share.share_w / 1000
        reached = f"caps reach {share.capped} of {share.nodes} nodes"
        feed = share.feed or "cluster"
        yield f"  share      {feed}, {rack}: draws {drawn:.3f} kW, gets {given:.3f} kW; {reached}"
    if len(shares) > MOST_RACKS:
        yield f"  share      and {len(shares) - MOST_RACKS} more; -o json has all"


def _changes(found: Sequence[Transition]) -> Iterator[TextTable]:
    if found:
        yield TextTable(("NODE", "WHAT"), [(each.node, each.text) for each in found], indent=4)


def next_plan_text(found: NextPlan, most: int) -> str:
    """At most so many nodes in each row."""
    later = found.after_s
    until = f"; as if nothing else happened for {later:g} s" if later else ""
    draining = [f"{node} ({pods} left)" for node, pods in found.draining.items()]
    held = [f"{node} ({why})" for node, why in found.held.items()]
    since = [f"{node} ({seconds} s)" for node, seconds in found.empty_in_order.items()]
    why = "eco in this order if fewer performance nodes are needed, the least dense first"
    return TextWithTables.of(
        [
            f"The next plan, from the facts up to position {found.plan.view} "
            f"({utc_text(found.at_ms)}) and the settings of {found.settings_of}{until}",
            f"  because    {found.plan.because}",
            *input_lines(found.inputs, found.shares),
            f"  changes    {len(found.transitions)}",
            *_changes(found.transitions),
            *_nodes("draining", draining, most, "eco when their performance pods have ended"),
            *_nodes("held", held, most, "not changed yet, and why"),
            *_nodes(
                "empty", since, most, "in the order in which they fall asleep, beyond the reserve"
            ),
            *_nodes("then", found.least_dense_first, most, why),
        ]
    )


def _nodes(title: str, nodes: Sequence[str], most: int, why: str) -> Iterator[str]:
    if nodes:
        more = ", ..." if len(nodes) > most else ""
        yield f"  {title:<10} {len(nodes)}: {why}"
        yield f"             {', '.join(nodes[:most])}{more}"
