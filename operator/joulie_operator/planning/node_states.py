"""The states of a node and what may follow each, taken from the guard and the policy.

The guard decides about profiles, the policy `consolidate_and_sleep` about sleep: a node that is
asleep or waking keeps its profile, and returns to it.
"""

import itertools
from functools import cache
from typing import NamedTuple

from joulie_bus.events import Profile
from joulie_operator.planning.guard import GuardInput, Stage, Transition, next_transition, stage_of
from joulie_operator.planning.sleep import SLEEPING_POLICY
from joulie_operator.planning.supply import is_empty
from joulie_projections.state.state import NodeState

ASLEEP, WAKING = "asleep", "waking"
_PROFILES: tuple[Profile, ...] = ("performance", "eco")
_POD_COUNTS: tuple[int | None, ...] = (None, 0, 1)
_EITHER = (False, True)
_EMPTY_NODES = {
    Stage.UNPLANNED: NodeState(ordinal=0, at=0),
    Stage.PERFORMANCE: NodeState(ordinal=0, at=0, profile="performance"),
    Stage.ECO: NodeState(ordinal=0, at=0, profile="eco"),
    Stage.DRAINING: NodeState(ordinal=0, at=0, profile="performance", draining=True),
}


class NodeStates(NamedTuple):
    """All states under a policy, the state of a node, and those that may follow it."""

    states: list[str]
    now: str
    following: list[str]


def node_states(node: NodeState, policy: str) -> NodeStates:
    sleeps = policy == SLEEPING_POLICY or bool(node.power_state)
    stage = stage_of(node)
    states = [str(each) for each in Stage] + ([ASLEEP, WAKING] if sleeps else [])
    if node.power_state == ASLEEP:
        return NodeStates(states, ASLEEP, [WAKING, str(stage)])  # awake at once if it is in use
    if node.power_state == WAKING:
        return NodeStates(states, WAKING, [str(stage)])
    following = [str(after) for after in following_stages(stage)]
    return NodeStates(
        states, str(stage), following + ([ASLEEP] if sleeps and can_sleep(stage) else [])
    )


def following_stages(stage: Stage) -> list[Stage]:
    """The stages that the guard can allow next, in the order of their definition."""
    reached = {each.after for each in transitions() if each.before == stage}
    return [each for each in Stage if each in reached]


@cache
def transitions() -> frozenset[Transition]:
    """Everything that the guard allows, over all of its inputs."""
    inputs = itertools.product(Stage, _POD_COUNTS, _EITHER, _EITHER, _PROFILES)
    tried = [
        next_transition(GuardInput(stage, pods, overdue, dwells), profile)
        for stage, pods, overdue, dwells, profile in inputs
    ]
    return frozenset(each for each in tried if isinstance(each, Transition))


def can_sleep(stage: Stage) -> bool:
    """Whether an empty node of this stage may sleep."""
    return is_empty(_EMPTY_NODES[stage])
