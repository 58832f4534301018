"""The changes of a plan, as JSON and as lines of text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from joulie_bus.events import NodePlan


def as_json(event: NodePlan) -> dict[str, Any]:
    return {"type": event.TYPE, **msgspec.to_builtins(event)}


def as_lines(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each change: the node, what changes, and why."""
    hidden = ("type", "plan", "node", "because")
    for event in events:
        what = ", ".join(f"{key} {value}" for key, value in event.items() if key not in hidden)
        kind = event["type"].removeprefix("plan.")
        yield f"    {event['node']:<24} {kind} {what}  {event.get('because', '')}".rstrip()
