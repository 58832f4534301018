"""What may happen to one node next: classes first, caps last, and nothing on a guess. Pure.

`docs/policies.md` draws this machine, and a test holds the drawing and `next_move` together.
"""

from enum import StrEnum
from typing import NamedTuple

from joulie_bus.events import Profile
from joulie_projections.state.state import NodeState

_SECOND = 1_000_000_000


class Stage(StrEnum):
    """Where a node stands between the profiles."""

    UNPLANNED = "unplanned"
    PERFORMANCE = "performance"
    DRAINING = "draining"
    ECO = "eco"


class Move(NamedTuple):
    before: Stage
    after: Stage
    why: str


class Held(NamedTuple):
    """It shall be something else, and may not become it yet."""

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


class Guarded(NamedTuple):
    """What the guard looks at, of one node at one moment."""

    stage: Stage
    performance_pods: int | None  # None: it cannot be known
    overdue: bool = False  # drains for longer than somebody allows
    dwells: bool = False  # has been in its class for too short a while


def stage_of(node: NodeState) -> Stage:
    if node.draining:
        return Stage.DRAINING
    return Stage(node.profile) if node.profile else Stage.UNPLANNED


def guarded(
    node: NodeState, now: int, *, pods_known: bool, deadline_s: float, dwell_s: float
) -> Guarded:
    """A deadline or dwell time of 0 is none. A node never planned before has not changed yet."""
    age_s = (now - node.class_at) / _SECOND
    return Guarded(
        stage=stage_of(node),
        performance_pods=node.performance_pods if pods_known else None,
        overdue=node.draining and 0 < deadline_s <= age_s,
        dwells=node.class_at > 0 and age_s < dwell_s,
    )


def next_move(node: Guarded, profile: Profile) -> Move | Held | None:
    """None: it is what it shall be."""
    if node.stage == profile:
        return None
    if profile == "performance":
        return _towards_performance(node)
    return _towards_eco(node)


def _towards_performance(node: Guarded) -> Move | Held:
    """Never a risk to a pod that runs, so it needs to know nothing."""
    if node.stage == Stage.DRAINING:
        return Move(node.stage, Stage.PERFORMANCE, AGAIN)
    if node.dwells:
        return Held(DWELLS)
    return Move(node.stage, Stage.PERFORMANCE, WANTED)


def _towards_eco(node: Guarded) -> Move | Held:
    if node.performance_pods is None:
        return Held(UNKNOWN)
    if node.stage == Stage.DRAINING:
        return _drained(node)
    if node.dwells:
        return Held(DWELLS)
    if node.performance_pods:
        return Move(node.stage, Stage.DRAINING, BUSY)
    return Move(node.stage, Stage.ECO, EMPTY)


def _drained(node: Guarded) -> Move | Held:
    if not node.performance_pods:
        return Move(node.stage, Stage.ECO, EMPTIED)
    if node.overdue:
        return Move(node.stage, Stage.ECO, OVERDUE)
    return Held(WAITS)


def caps_profile(node: NodeState, now: int, *, pods_known: bool, settle_s: float) -> Profile | None:
    """Whose caps the node may have now, if it stays where it is; None: leave them as they are.

    Pods that were on their way when the class changed are seen bound a little later: hence the
    settling time. Performance pods that slipped in keep the caps away until they are gone.
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
