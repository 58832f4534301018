"""The state machine of one node: which transition is allowed next.

Towards eco, classes change first and caps last; nothing becomes eco while its pods are unknown.
`docs/policies.md` contains a diagram, and a test compares it with `next_transition`.
"""

from enum import StrEnum
from typing import NamedTuple

from joulie_bus.events import Profile
from joulie_projections.state.state import NodeState

_SECOND = 1_000_000_000


class Stage(StrEnum):
    """The stage of a node between the profiles."""

    UNPLANNED = "unplanned"
    PERFORMANCE = "performance"
    DRAINING = "draining"
    ECO = "eco"


# Calling `Stage` for every node of every plan takes a tenth of the time of the guard.
_STAGES: dict[str, Stage] = {"": Stage.UNPLANNED, **{each.value: each for each in Stage}}


class Transition(NamedTuple):
    """An allowed change of the stage, with its reason."""

    before: Stage
    after: Stage
    why: str


class Hold(NamedTuple):
    """The node needs a transition that is not allowed yet."""

    why: str


UNKNOWN = "it is not known which pods run here"
WAITS = "performance pods still run here"
DWELLS = "it changed its class too short a while ago"
LIMITED = "enough nodes change at once"

WANTED = "performance is wanted"
EMPTY = "eco is wanted and no performance pod runs here"
BUSY = "eco is wanted and performance pods run here"
AGAIN = "performance is wanted again"
EMPTIED = "the last performance pod is gone"
OVERDUE = "the deadline for draining has passed"


class GuardInput(NamedTuple):
    """The input of the guard for one node."""

    stage: Stage
    performance_pods: int | None  # None: unknown
    overdue: bool = False  # has been draining for longer than the deadline
    dwells: bool = False  # has been in its class for less than the dwell time


def stage_of(node: NodeState) -> Stage:
    if node.draining:
        return Stage.DRAINING
    return _STAGES[node.profile]


def guard_input(
    node: NodeState, now: int, *, pods_known: bool, deadline_s: float, dwell_s: float
) -> GuardInput:
    """A deadline or dwell time of 0 means none. The first plan of a node needs no dwell time."""
    age_s = (now - node.class_at) / _SECOND
    return GuardInput(
        stage=stage_of(node),
        performance_pods=node.performance_pods if pods_known else None,
        overdue=node.draining and 0 < deadline_s <= age_s,
        dwells=node.class_at > 0 and age_s < dwell_s,
    )


def next_transition(node: GuardInput, profile: Profile) -> Transition | Hold | None:
    """None if the node has the profile already."""
    if node.stage == profile:
        return None
    if profile == "performance":
        return _towards_performance(node)
    return _towards_eco(node)


def _towards_performance(node: GuardInput) -> Transition | Hold:
    """Never a risk to running pods, so it does not depend on them."""
    if node.stage == Stage.DRAINING:
        return Transition(node.stage, Stage.PERFORMANCE, AGAIN)
    if node.dwells:
        return Hold(DWELLS)
    return Transition(node.stage, Stage.PERFORMANCE, WANTED)


def _towards_eco(node: GuardInput) -> Transition | Hold:
    if node.performance_pods is None:
        return Hold(UNKNOWN)
    if node.stage == Stage.DRAINING:
        return _drained(node)
    if node.dwells:
        return Hold(DWELLS)
    if node.performance_pods:
        return Transition(node.stage, Stage.DRAINING, BUSY)
    return Transition(node.stage, Stage.ECO, EMPTY)


def _drained(node: GuardInput) -> Transition | Hold:
    if not node.performance_pods:
        return Transition(node.stage, Stage.ECO, EMPTIED)
    if node.overdue:
        return Transition(node.stage, Stage.ECO, OVERDUE)
    return Hold(WAITS)


def caps_profile(node: NodeState, now: int, *, pods_known: bool, settle_s: float) -> Profile | None:
    """The profile for the caps of a node without a transition; None: the caps stay as they are.

    Pods that were in flight when the class changed are seen bound a little later, hence the
    settling time. Performance pods that were bound meanwhile delay the eco caps until they end.
    """
    match stage_of(node):
        case Stage.PERFORMANCE:
            return "performance"
        case Stage.ECO:
            has_settled = now - node.class_at >= settle_s * _SECOND
            is_empty = pods_known and not node.performance_pods
            return "eco" if has_settled and is_empty else None
        case _:
            return None
