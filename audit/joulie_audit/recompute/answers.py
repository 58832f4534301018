"""Recomputes a recorded decision or plan with the code that makes them, and compares."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.events import (
    Decision,
    PlanEvent,
    PlanMade,
    PrioritizeDecided,
    ResizeOrdered,
    Terms,
)
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import again
from joulie_operator.planning import reconcile, request_sizes
from joulie_operator.planning.reconcile import LoadedPolicy
from joulie_projections.state.state import ClusterState
from joulie_projections.twin.columns import TwinColumns

MISSING = "input-missing"
STATE = "state-differs"
ANSWER = "answer-differs"
SCORE = "score-differs"
ORDER = "order-differs"
PLAN = "plan-differs"
RESIZE = "resize-differs"


class Mismatch(NamedTuple):
    """`entry` is the number of the log entry; for a state or a plan, its position."""

    entry: int
    kind: str
    what: str


class RecordedAnswer(NamedTuple):
    """A logged decision and the settings to recompute it with."""

    entry: int
    decision: Decision
    weights: Weights | None
    header_mismatch: str = ""  # the header field that differs from the message


class RecordedPlan(NamedTuple):
    """A plan as the log holds it, in one part or several."""

    position: int
    made: PlanMade
    changes: list[PlanEvent]


class RecordedResize(NamedTuple):
    """An order to change the requests of a pod; it records all that it rests on."""

    position: int
    order: ResizeOrdered


def check_answer(answer: RecordedAnswer, twin_columns: TwinColumns) -> Mismatch | None:
    """None if the recomputed decision is identical."""
    if answer.header_mismatch:
        what = f"{answer.header_mismatch} of its header does not match its message"
        return Mismatch(answer.entry, ANSWER, what)
    if answer.weights is None:
        return Mismatch(answer.entry, MISSING, "its settings are not in the log")
    try:
        now = again(answer.decision, twin_columns, answer.weights)
    except (KeyError, IndexError, StopIteration):
        return Mismatch(answer.entry, MISSING, "a candidate was not in the view")
    return compare(answer.entry, answer.decision, now)


def compare(entry: int, then: Decision, now: Decision) -> Mismatch | None:
    if then == now:
        return None
    if isinstance(then, PrioritizeDecided) and isinstance(now, PrioritizeDecided):
        return _compare_scores(entry, then, now)
    return Mismatch(entry, ANSWER, _first_field(then, now))


def _compare_scores(entry: int, then: PrioritizeDecided, now: PrioritizeDecided) -> Mismatch:
    """Names the first term that differs, and the score only if all its terms are equal."""
    again_by_name = {terms.node: terms for terms in now.top}
    for old in then.top:
        new = again_by_name.get(old.node)
        if new is not None and (what := _first_term(old, new)):
            return Mismatch(entry, SCORE, what)
    before, after = [terms.node for terms in then.top], [terms.node for terms in now.top]
    if before != after:
        what = f"the best were {', '.join(before)} then, and are {', '.join(after)} now"
        return Mismatch(entry, ORDER, what)
    return Mismatch(entry, SCORE, _first_field(then, now))


def _first_term(old: Terms, new: Terms) -> str:
    fields = [field for field in Terms.__struct_fields__ if field != "score"]
    for field in (*fields, "score"):
        was, is_now = getattr(old, field), getattr(new, field)
        if was != is_now:
            alone = "; every term is equal, so the sum is computed differently"
            return (
                f"{field} of {old.node}: {was!r} then, {is_now!r} now"
                f"{alone if field == 'score' else ''}"
            )
    return ""


def _first_field(then: object, now: object) -> str:
    for field in getattr(then, "__struct_fields__", ()):
        if getattr(then, field) != getattr(now, field):
            return f"{field} differs"
    return "an unnamed part differs"


# --- plans ------------------------------------------------------------------------------------


def check_plan(
    planned: RecordedPlan, cluster_state: ClusterState, policies: Mapping[str, LoadedPolicy]
) -> Mismatch | None:
    """Makes the plan again, by its policy and settings, from the same cluster state."""
    made = planned.made
    if not made.settings:
        return Mismatch(planned.position, PLAN, f"{made.plan} names no settings")
    policy = policies.get(made.policy)
    if policy is None:
        what = f"{made.plan}: its policy {made.policy} is not installed here"
        return Mismatch(planned.position, MISSING, what)
    now = reconcile.recompute(made, cluster_state, policy)
    if (before := _without_part(planned.made)) != now.made:
        what = f"{planned.made.plan}: {_first_field(before, now.made)}"
        return Mismatch(planned.position, PLAN, what)
    for old, new in zip(planned.changes, now.events, strict=False):
        if old != new:
            what = f"{planned.made.plan}: {old.TYPE} of {old.key}: {_first_field(old, new)}"
            return Mismatch(planned.position, PLAN, what)
    if len(planned.changes) > len(now.events):
        count = f"{len(planned.changes)} changes then, {len(now.events)} now"
        return Mismatch(planned.position, PLAN, f"{planned.made.plan}: {count}")
    return None  # fewer: another operator published between two parts


def check_resize(recorded: RecordedResize) -> Mismatch | None:
    order = recorded.order
    if (now := request_sizes.recomputed(order)) == order.after:
        return None
    then, again = request_sizes.total_in_words(order.after), request_sizes.total_in_words(now)
    what = f"{order.pod}: {order.change} to {then} then, to {again} now"
    return Mismatch(recorded.position, RESIZE, what)


def _without_part(made: PlanMade) -> PlanMade:
    """A large plan is written in numbered parts; a recomputed plan has one."""
    return replace(made, part=1, parts=1)
