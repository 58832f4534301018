"""The same past under other settings or another policy: who would have won?

Open loop: every question is asked again as it was asked then, whatever the other answers would
have led to; the readings that came later are those of the real placements. Nothing here can
publish: facts and log entries go in, a report comes out, and no function takes a log to write to.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from joulie_audit.facts import Facts
from joulie_audit.fold import Past
from joulie_audit.logged import Queue, answers_of
from joulie_audit.recompute import Answer
from joulie_audit.shifts import Compared, Shift, compared
from joulie_bus.events import PlanMade, PrioritizeDecided, Terms
from joulie_extender.decide import again
from joulie_extender.scoring import Weights
from joulie_operator.plugins import chosen
from joulie_operator.reconcile import Moment, plan
from joulie_operator.rules import Rules, rules_of
from joulie_projections.board import Board
from joulie_projections.draft import Draft
from joulie_projections.folds import evolve
from joulie_projections.history import NEWEST, History
from joulie_projections.world import CLUSTER, NodeState, World

OPEN_LOOP = (
    "Open loop: placements that would have changed do not change the readings that followed. "
    "Good for comparing answers, not for predicting a bill."
)
Revalue = Callable[[Weights], Weights]


class Other(NamedTuple):
    """What is different; None leaves a part as it was."""

    weights: Revalue | None = None
    rules: Callable[[Rules], Rules] | None = None


async def what_if(
    history: History, facts: Facts, other: Other, first: int = 1, last: int = NEWEST
) -> Compared:
    past, branch = Past(aside=history.set_aside()), _Branch(other)
    logged = Queue(answers_of(history, first, last))
    shifts: list[Shift] = []
    for manifest in history.manifests(1, last):
        past.skip(await facts.of(manifest))
        branch.follow(past.world)
        for _, answer in logged.up_to(manifest.p_to):
            if (shift := branch.shift(answer, past)) is not None:
                shifts.append(shift)
    return compared(shifts)


# What only plans change about a node.
_STANCE = (
    "profile",
    "draining",
    "cpu_cap_pct",
    "gpu_cap_pct",
    "cpu_cap_mw_per_socket",
    "gpu_cap_mw",
    "class_at",
    "caps_at",
)
_UNPLANNED = NodeState(ordinal=0, at=0)


class _Branch:
    """How it would have been: each time that the operator looked, the other rules look, too.

    They look at what they have made of the nodes themselves, so that a class that they gave one is
    theirs to take back, and its caps come when it has settled.
    """

    def __init__(self, other: Other) -> None:
        self._other = other
        self._planned_at = 0
        self._nodes: dict[str, NodeState] = {}
        self._different: list[str] = []
        self._laid: tuple[int, Board] | None = None

    def follow(self, world: World) -> None:
        """Call it at every batch: a plan that is missed is missing in all that follow."""
        if self._other.rules is None or world.planned_at == self._planned_at:
            return
        self._planned_at = world.planned_at
        made = world.cluster[CLUSTER].plan
        if made is None or not made.settings:
            return
        rules = self._other.rules(rules_of(made.settings))
        if rules.dry_run:
            return
        self._nodes = _as_planned(self._own(world), made, rules, world.planned_at)
        theirs = world.nodes
        self._different = [n for n, own in self._nodes.items() if own != _standing(theirs[n], own)]

    def _own(self, world: World) -> World:
        """This world, with what our own plans have made of its nodes."""
        own = World()
        own.pods, own.cluster = world.pods, dict(world.cluster)
        own.nodes = {
            name: _standing(self._nodes.get(name, _UNPLANNED), node)
            for name, node in world.nodes.items()
        }
        return own

    def shift(self, answer: Answer, past: Past) -> Shift | None:
        decision = answer.decision
        if not isinstance(decision, PrioritizeDecided) or answer.weights is None:
            return None
        weights = self._other.weights(answer.weights) if self._other.weights else answer.weights
        then = past.board()
        board = self._board(past)
        try:
            now = again(decision, board, weights)
        except (KeyError, StopIteration):
            return None
        if not isinstance(now, PrioritizeDecided) or not now.top or not decision.top:
            return None
        pod, before, after = decision.pod, decision.top[0], now.top[0]
        return Shift(
            entry=answer.entry,
            pod=f"{pod.namespace}/{pod.name}",
            namespace=pod.namespace,
            workload=pod.workload,
            before=before,
            after=after,
            over_cap_before=_is_over(then, before),
            over_cap_after=_is_over(board, after),
            cores=pod.cpu_milli / 1000,
            gpus=pod.gpu_milli / 1000,
        )

    def _board(self, past: Past) -> Board:
        board = past.board()
        if not self._different:
            return board
        if self._laid is None or self._laid[0] != past.position:
            self._laid = past.position, board.following(past.world, self._overlaid(past.world))
        return self._laid[1]

    def _overlaid(self, world: World) -> dict[str, NodeState | None]:
        """Newest readings, other classes and caps."""
        there = (name for name in self._different if name in world.nodes)
        return {name: _standing(self._nodes[name], world.nodes[name]) for name in there}


def _standing(planned: NodeState, node: NodeState) -> NodeState:
    """The node, planned as the other one was."""
    return replace(node, **{name: getattr(planned, name) for name in _STANCE})


def _as_planned(world: World, made: PlanMade, rules: Rules, at: int) -> dict[str, NodeState]:
    """What these rules make of the world, at the moment of a real plan."""
    moment = Moment(made.view, made.now, made.pods_known)
    draft = Draft(world)
    for event in plan(world, chosen(rules.policy), rules, moment).events:
        evolve(draft, event, at)
    draft.commit()
    return world.nodes


def _is_over(board: Board, winner: Terms) -> bool:
    row = board.rows.get(winner.node)
    if row is None:
        return False
    measured, capped = board.floats("measured_w")[row], board.floats("capped_w")[row]
    return bool(capped > 0 and measured + winner.marginal_w > capped)
