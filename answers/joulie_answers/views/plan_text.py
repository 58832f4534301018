"""Plans and transitions as API values."""

from typing import NamedTuple

import msgspec

from joulie_answers.schema.responses import PlanEntry, Transition
from joulie_answers.views.cluster_view import MS, plan_brief
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    CapsSet,
    DrainingBegun,
    EvictionOrdered,
    PlacementClosed,
    PlacementOpened,
    PlanMade,
    ProfileAssigned,
    SleepOrdered,
    TransitionCompleted,
    WakeOrdered,
    codec,
)
from joulie_bus.streams.authority import require_authority
from joulie_bus.streams.records import Record

_json = msgspec.json.Encoder().encode


class PlanLine(NamedTuple):
    number: int  # its position among the facts
    topic: str
    entry: PlanEntry
    node: str
    data: bytes


def plan_line(record: Record, position: int) -> PlanLine | None:
    """None for a message that cannot be read: the projector has quarantined it."""
    try:
        where = f"{record.stream} #{record.sequence}"
        envelope = codec.open_envelope(record.data, where)
        event = codec.read(envelope, where)
        require_authority(record, envelope, event, where)
    except Undecodable:
        return None
    at_ms = record.at // MS
    if isinstance(event, PlanMade):
        entry = PlanEntry(position=position, at_ms=at_ms, plan=plan_brief(event))
        return PlanLine(position, "plans", entry, "", _json(entry))
    fields = _transition_fields(event)
    if fields is None:
        return None
    plan, node, to, because = fields
    transition = Transition(
        position=position,
        at_ms=at_ms,
        plan=plan,
        node=node,
        kind=event.TYPE.removeprefix("plan."),
        to=to,
        because=because,
    )
    entry = PlanEntry(position=position, at_ms=at_ms, transition=transition)
    return PlanLine(position, "transitions", entry, node, _json(entry))


_USES = {
    SleepOrdered: "asleep",
    WakeOrdered: "waking",
    EvictionOrdered: "evicting",
    PlacementClosed: "closed",
    PlacementOpened: "open",
}


def _transition_fields(event: object) -> tuple[str, str, str, str] | None:
    """Plan, node, new state, and reason."""
    match event:
        case ProfileAssigned():
            return event.plan, event.node, event.profile, event.because
        case TransitionCompleted():
            return event.plan, event.node, event.profile, "the transition is complete"
        case DrainingBegun():
            return event.plan, event.node, "draining", event.because
        case (
            SleepOrdered()
            | WakeOrdered()
            | EvictionOrdered()
            | PlacementClosed()
            | PlacementOpened()
        ):
            return event.plan, event.node, _USES[type(event)], event.because
        case CapsSet():
            return event.plan, event.node, _caps(event), ""
        case _:
            return None


def _caps(event: CapsSet) -> str:
    cpu = "none" if event.cpu_cap_pct is None else f"{event.cpu_cap_pct} %"
    gpu = "none" if event.gpu_cap_pct is None else f"{event.gpu_cap_pct} %"
    single = event.standard_gpu_cap_pct
    cards = "" if single is None else f", cards of class standard {single} %"
    return f"caps: CPU {cpu}, GPU {gpu}{cards}"
