"""Plans and transitions as API values."""

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from joulie_answers.schema.responses import PlanBrief, PlanEntry, PowerShare, Transition
from joulie_answers.views.cluster_view import plan_brief
from joulie_answers.views.sentences import transition_sentence
from joulie_audit.questions.next_plan import NextPlan
from joulie_bus.core.times import MS
from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    CapsSet,
    DrainingBegun,
    EvictionOrdered,
    PlacementClosed,
    PlacementOpened,
    PlanMade,
    ProfileAssigned,
    Resized,
    ResizeOrdered,
    ResizeRefused,
    SleepOrdered,
    TransitionCompleted,
    WakeOrdered,
    codec,
)
from joulie_bus.streams.authority import require_authority
from joulie_bus.streams.records import Record
from joulie_operator.planning.power.budget import is_of_rack, shares_in
from joulie_operator.planning.power_target import place
from joulie_operator.planning.request_sizes import total_in_words

NS = 10**9
RESIZES = "requests"  # in place of a plan: changes of requests are part of none
_json = msgspec.json.Encoder().encode


class PlanLine(NamedTuple):
    number: int  # its position among the facts
    topic: str
    entry: PlanEntry
    node: str
    data: bytes


def plan_event(record: Record) -> object:
    """None for a message that cannot be read: the projector has quarantined it."""
    try:
        where = f"{record.stream} #{record.sequence}"
        envelope = codec.open_envelope(record.data, where)
        event = codec.read(envelope, where)
        require_authority(record, envelope, event, where)
    except Undecodable:
        return None
    return event


def plan_line(record: Record, position: int) -> PlanLine | None:
    event = plan_event(record)
    at_ms = record.at // MS
    if isinstance(event, PlanMade):
        entry = PlanEntry(position=position, at_ms=at_ms, plan=plan_brief(event))
        return PlanLine(position, "plans", entry, "", _json(entry))
    transition = transition_of(event, position, at_ms)
    if transition is None:
        return None
    entry = PlanEntry(position=position, at_ms=at_ms, transition=transition)
    return PlanLine(position, "transitions", entry, transition.node, _json(entry))


def transition_of(event: object, position: int, at_ms: int) -> Transition | None:
    fields = _transition_fields(event)
    if fields is None:
        return None
    plan, node, to, because = fields
    move = Transition(
        position=position,
        at_ms=at_ms,
        plan=plan,
        node=node,
        kind=str(getattr(event, "TYPE", "")).removeprefix("plan."),
        to=to,
        because=because,
    )
    return replace(move, text=transition_sentence(move))


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
        case ResizeOrdered() | Resized() | ResizeRefused():
            return RESIZES, event.node, *_resize(event)
        case _:
            return None


def _resize(event: ResizeOrdered | Resized | ResizeRefused) -> tuple[str, str]:
    """The pod with what it requests, and the reason."""
    match event:
        case ResizeOrdered():
            return f"{event.pod}, {event.change}", event.because
        case Resized():
            return f"{event.pod}, {event.change}", f"it requests {total_in_words(event.after)}"
        case ResizeRefused():
            return f"{event.pod}, {event.reason}", event.because


def _caps(event: CapsSet) -> str:
    cpu = _cap(event.cpu_cap_pct, event.cpu_cap_mw_per_socket, "a socket")
    gpu = _cap(event.gpu_cap_pct, event.gpu_cap_mw, "a card")
    single = event.standard_gpu_cap_pct
    cards = "" if single is None else f", cards of class standard {single} %"
    return f"caps: CPU {cpu}, GPU {gpu}{cards}"


def _cap(percent: int | None, milliwatts: int | None, of: str) -> str:
    if percent is None:
        return "none"
    return f"{percent} %" + (f" ({milliwatts / 1000:g} W {of})" if milliwatts else "")


def changed_nothing(line: PlanLine) -> bool:
    return isinstance(line.entry.plan, PlanBrief) and not line.entry.plan.changes


def plain_inputs(made: PlanMade) -> dict[str, float]:
    """Without those that tell how a power target is divided."""
    return {name: value for name, value in made.inputs.items() if not is_of_rack(name)}


def power_shares(made: PlanMade) -> list[PowerShare]:
    return [
        PowerShare(
            feed=place(each.feed) if each.feed else "",
            rack=each.rack,
            nodes=each.nodes,
            capped=each.capped,
            drawn_w=each.drawn_w,
            share_w=each.share_w,
        )
        for each in shares_in(made.inputs)
    ]


def next_plan_of(found: NextPlan, settings_of: str, at: int, after_s: float) -> dict[str, Any]:
    """The parts of the answer, as of `at` and for `after_s` later."""
    made, now_ms = found.plan.made, found.plan.made.now // MS
    moves = (transition_of(event, 0, now_ms) for event in found.plan.events)
    return {
        "plan": plan_brief(made),
        "settings_of": settings_of,
        "after_s": after_s,
        "now_ms": now_ms,
        "inputs": plain_inputs(made),
        "shares": power_shares(made),
        "settings": made.settings,
        "transitions": [move for move in moves if move is not None],
        "held": found.plan.held,
        "draining": found.draining,
        "least_dense_first": found.least_dense_first,
        "empty_in_order": {
            node: max(0, at - since) // NS for node, since in found.empty_in_order.items()
        },
    }
