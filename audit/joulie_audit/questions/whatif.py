"""The same past under other settings or another policy: who would have won?

Open loop: every question is asked again as it was asked then, whatever the other answers would
have led to; the readings that came later are those of the real placements. Nothing here can
publish: facts and log entries go in, a report comes out, and no function takes a log to write to.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from joulie_audit.archive.fact_source import Facts
from joulie_audit.questions.score_changes import Compared, Shift, compared
from joulie_audit.replay.fold import Past
from joulie_audit.replay.recompute import Answer
from joulie_audit.replay.recorded import Queue, answers_of
from joulie_bus.events import PlanMade, PrioritizeDecided, Terms
from joulie_extender.decide.decide import again
from joulie_extender.decide.scoring import Weights
from joulie_operator.planning.plugins import load_policy
from joulie_operator.planning.reconcile import PlanBasis, plan
from joulie_operator.planning.rules import Rules, rules_of
from joulie_projections.fold.registry import evolve
from joulie_projections.history.history import NEWEST, History
from joulie_projections.state.state import CLUSTER, ClusterState, NodeState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns

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
        branch.follow(past.cluster_state)
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
        self._laid: tuple[int, TwinColumns] | None = None

    def follow(self, cluster_state: ClusterState) -> None:
        """Call it at every batch: a plan that is missed is missing in all that follow."""
        if self._other.rules is None or cluster_state.planned_at == self._planned_at:
            return
        self._planned_at = cluster_state.planned_at
        made = cluster_state.cluster[CLUSTER].plan
        if made is None or not made.settings:
            return
        rules = self._other.rules(rules_of(made.settings))
        if rules.dry_run:
            return
        self._nodes = _as_planned(self._own(cluster_state), made, rules, cluster_state.planned_at)
        theirs = cluster_state.nodes
        self._different = [n for n, own in self._nodes.items() if own != _standing(theirs[n], own)]

    def _own(self, cluster_state: ClusterState) -> ClusterState:
        """This world, with what our own plans have made of its nodes."""
        own = ClusterState()
        own.pods, own.cluster = cluster_state.pods, dict(cluster_state.cluster)
        own.nodes = {
            name: _standing(self._nodes.get(name, _UNPLANNED), node)
            for name, node in cluster_state.nodes.items()
        }
        return own

    def shift(self, answer: Answer, past: Past) -> Shift | None:
        decision = answer.decision
        if not isinstance(decision, PrioritizeDecided) or answer.weights is None:
            return None
        weights = self._other.weights(answer.weights) if self._other.weights else answer.weights
        then = past.twin_columns()
        twin_columns = self._twin_columns(past)
        try:
            now = again(decision, twin_columns, weights)
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
            over_cap_after=_is_over(twin_columns, after),
            cores=pod.cpu_milli / 1000,
            gpus=pod.gpu_milli / 1000,
        )

    def _twin_columns(self, past: Past) -> TwinColumns:
        twin_columns = past.twin_columns()
        if not self._different:
            return twin_columns
        if self._laid is None or self._laid[0] != past.position:
            self._laid = (
                past.position,
                twin_columns.following(past.cluster_state, self._overlaid(past.cluster_state)),
            )
        return self._laid[1]

    def _overlaid(self, cluster_state: ClusterState) -> dict[str, NodeState | None]:
        """Newest readings, other classes and caps."""
        there = (name for name in self._different if name in cluster_state.nodes)
        return {name: _standing(self._nodes[name], cluster_state.nodes[name]) for name in there}


def _standing(planned: NodeState, node: NodeState) -> NodeState:
    """The node, planned as the other one was."""
    return replace(node, **{name: getattr(planned, name) for name in _STANCE})


def _as_planned(
    cluster_state: ClusterState, made: PlanMade, rules: Rules, at: int
) -> dict[str, NodeState]:
    """What these rules make of the world, at the moment of a real plan."""
    basis = PlanBasis(made.view, made.now, made.pods_known)
    draft = Draft(cluster_state)
    for event in plan(cluster_state, load_policy(rules.policy), rules, basis).events:
        evolve(draft, event, at)
    draft.commit()
    return cluster_state.nodes


def _is_over(twin_columns: TwinColumns, winner: Terms) -> bool:
    row = twin_columns.rows.get(winner.node)
    if row is None:
        return False
    measured, capped = twin_columns.floats("measured_w")[row], twin_columns.floats("capped_w")[row]
    return bool(capped > 0 and measured + winner.marginal_w > capped)
