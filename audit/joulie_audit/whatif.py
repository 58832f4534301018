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
        for _, answer in logged.up_to(manifest.p_to):
            if (shift := branch.shift(answer, past)) is not None:
                shifts.append(shift)
    return compared(shifts)


class _Branch:
    """How it would have been. Holds the nodes that the other rules would have made different."""

    def __init__(self, other: Other) -> None:
        self._other = other
        self._planned_at = -1
        self._nodes: dict[str, NodeState] = {}
        self._laid: tuple[int, Board] | None = None

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
        if self._other.rules is None:
            return board
        if past.world.planned_at != self._planned_at:
            self._planned_at = past.world.planned_at
            self._nodes = self._replanned(past.world)
        if self._laid is None or self._laid[0] != past.position:
            laid = board.following(past.world, self._overlaid(past.world))
            self._laid = past.position, laid
        return self._laid[1]

    def _replanned(self, world: World) -> dict[str, NodeState]:
        """By the rules of the newest plan, but for what is different."""
        made = world.cluster[CLUSTER].plan if world.cluster else None
        if made is None or not made.settings or self._other.rules is None:
            return {}
        return _as_planned(world, made, self._other.rules(rules_of(made.settings)))

    def _overlaid(self, world: World) -> dict[str, NodeState | None]:
        """Newest readings, other classes and caps."""
        laid: dict[str, NodeState | None] = {}
        for name, planned in self._nodes.items():
            node = world.nodes.get(name)
            if node is not None:
                changed = replace(
                    node,
                    profile=planned.profile,
                    draining=planned.draining,
                    cpu_cap_pct=planned.cpu_cap_pct,
                    gpu_cap_pct=planned.gpu_cap_pct,
                )
                laid[name] = changed
        return laid


def _as_planned(world: World, made: PlanMade, rules: Rules) -> dict[str, NodeState]:
    """The nodes as another operator would have them, each time that the real one looked."""
    nodes = dict(world.nodes)
    moment = Moment(made.view, made.now, made.pods_known)
    for change in plan(world, chosen(rules.policy), rules, moment).events:
        node = nodes[change.key]
        match change.TYPE:
            case "plan.profile-assigned":
                node = replace(node, profile=getattr(change, "profile", ""), draining=False)
            case "plan.draining-begun":
                node = replace(node, draining=True)
            case "plan.caps-set":
                caps = {name: getattr(change, name) for name in ("cpu_cap_pct", "gpu_cap_pct")}
                node = replace(node, **caps)
            case _:
                continue
        nodes[change.key] = node
    return {name: node for name, node in nodes.items() if node is not world.nodes[name]}


def _is_over(board: Board, winner: Terms) -> bool:
    row = board.rows.get(winner.node)
    if row is None:
        return False
    measured, capped = board.floats("measured_w")[row], board.floats("capped_w")[row]
    return bool(capped > 0 and measured + winner.marginal_w > capped)
