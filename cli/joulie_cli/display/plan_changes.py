"""The changes of a plan, as JSON and as lines of text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from joulie_bus.events import NodePlan
from joulie_operator.planning.power.budget import is_of_rack, shares_in
from joulie_operator.planning.power_target import place


def as_json(event: NodePlan) -> dict[str, Any]:
    return {"type": event.TYPE, **msgspec.to_builtins(event)}


MOST_RACKS = 20


def input_lines(inputs: Mapping[str, float]) -> Iterator[str]:
    """The inputs of a plan, and how its power targets are divided: one line for each rack."""
    others = (f"{name} {value:g}" for name, value in inputs.items() if not is_of_rack(name))
    yield "  inputs     " + ", ".join(others)
    shares = shares_in(inputs)
    for share in shares[:MOST_RACKS]:
        feed = place(share.feed) if share.feed else "cluster"
        rack = f"rack {share.rack}" if share.rack else "no rack"
        drawn, given = share.drawn_w / 1000, share.share_w / 1000
        reached = f"caps reach {share.capped} of {share.nodes} nodes"
        yield f"  share      {feed}, {rack}: draws {drawn:.3f} kW, gets {given:.3f} kW; {reached}"
    if len(shares) > MOST_RACKS:
        yield f"  share      and {len(shares) - MOST_RACKS} more; --json has all"


def as_lines(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each change: the node, what changes, and why."""
    hidden = ("type", "plan", "node", "because")
    for event in events:
        what = ", ".join(f"{key} {value}" for key, value in event.items() if key not in hidden)
        kind = event["type"].removeprefix("plan.")
        yield f"    {event['node']:<24} {kind} {what}  {event.get('because', '')}".rstrip()
