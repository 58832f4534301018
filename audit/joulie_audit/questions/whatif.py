"""Recomputes recorded decisions under other settings or another policy.

Open loop: every request is answered again as recorded, regardless of the effect of changed
answers; later readings are those of the real placements. Nothing here can publish: facts and log
entries go in, a report comes out, and no function takes a log to write to.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from joulie_audit.archive.fact_source import FactSource
from joulie_audit.recompute.added_watts import added_watts
from joulie_audit.recompute.answers import RecordedAnswer
from joulie_audit.recompute.fold import FoldedState
from joulie_audit.recompute.score_changes import Comparison, ScoreChange, compare_changes
from joulie_audit.replay.fold_start import start_before
from joulie_audit.replay.recorded import PositionQueue, answers_of, first_view
from joulie_bus.events import PlanMade, PrioritizeDecided, Terms
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import again
from joulie_operator.planning.reconcile import PlanBasis, plan
from joulie_operator.planning.rules import Rules, rules_of
from joulie_operator.plugins import load_policy
from joulie_projections.fold.registry import evolve
from joulie_projections.history.history import NEWEST, History
from joulie_projections.state.state import CLUSTER, ClusterState, NodeState
from joulie_projections.state.state_changes import Draft
from joulie_projections.twin.columns import TwinColumns

OPEN_LOOP = (
    "Open loop: placements that would have changed do not change the readings that followed. "
    "Good for comparing answers, not for predicting a bill."
)
UNKNOWN_SETTINGS = "their settings are not in the log, or this version does not know their values"
NOT_REPRODUCED = "the facts of their position do not have all their candidates"
Revalue = Callable[[Weights], Weights]


class Overrides(NamedTuple):
    """The changed settings; None keeps the recorded ones."""

    weights: Revalue | None = None
    rules: Callable[[Rules], Rules] | None = None


class Period(NamedTuple):
    first: int = 1
    last: int = NEWEST
    sample: int = 0  # about so many scored pods, evenly spread; 0: all


WHOLE_LOG = Period()
Progress = Callable[[int], None]  # called with the last folded position


async def what_if(
    history: History,
    facts: FactSource,
    overrides: Overrides,
    period: Period = WHOLE_LOG,
    progress: Progress | None = None,
) -> Comparison:
    folded = _start(history, overrides, period)
    logged = PositionQueue(answers_of(history, period.first, period.last))
    shifts = _Shifts(_Counterfactual(overrides), folded, _step(history, period))
    if folded.position:
        shifts.add(logged.up_to(folded.position))
    for manifest in history.manifests(folded.position + 1, period.last):
        folded.skip(await facts.of(manifest))
        shifts.add(logged.up_to(manifest.p_to))
        if progress is not None:
            progress(manifest.p_to)
    return shifts.compared()


class _Shifts:
    """What changes in the answers, of which every `step`th that has scores is computed."""

    def __init__(self, branch: "_Counterfactual", folded: FoldedState, step: int) -> None:
        self._branch = branch
        self._folded = folded
        self._step = step
        self._scored = 0
        self._found: list[ScoreChange] = []
        self._left_out = Counter[str]()

    def add(self, answers: Iterable[tuple[int, RecordedAnswer]]) -> None:
        self._branch.follow(self._folded.cluster_state)
        for _, answer in answers:
            if (why := _not_computed(answer)) is not None:
                self._left_out[why] += bool(why)
                continue
            self._scored += 1
            if (self._scored - 1) % self._step == 0:
                self._compute(answer)

    def _compute(self, answer: RecordedAnswer) -> None:
        if (shift := self._branch.shift(answer, self._folded)) is None:
            self._left_out[NOT_REPRODUCED] += 1
        else:
            self._found.append(shift)

    def compared(self) -> Comparison:
        left_out = {why: count for why, count in self._left_out.items() if count}
        return compare_changes(self._found, left_out, self._step)


def _start(history: History, overrides: Overrides, period: Period) -> FoldedState:
    """At the newest snapshot before the period; other rules plan from the first fact on, because
    each plan depends on those before it."""
    if overrides.rules is not None:
        return FoldedState(set_aside=history.set_aside())
    return start_before(history, period.first - 1)


def _step(history: History, period: Period) -> int:
    """Of a pod the log mostly has two answers: those of a filter, and its scores."""
    if not period.sample:
        return 1
    count = history.count_answers(first_view(period.first), period.last)
    return max(1, count // 2 // period.sample)


def _not_computed(answer: RecordedAnswer) -> str | None:
    """Why the scores of an answer cannot be computed; empty for one without scores."""
    decision = answer.decision
    if not isinstance(decision, PrioritizeDecided) or not decision.top:
        return ""
    return UNKNOWN_SETTINGS if answer.weights is None else None


# Fields of a node that only plans change.
_PLANNED_FIELDS = (
    "profile",
    "draining",
    "cpu_cap_pct",
    "gpu_cap_pct",
    "cpu_cap_mw_per_socket",
    "gpu_cap_mw",
    "standard_gpu_cap_pct",
    "class_at",
    "caps_at",
)
_WITHOUT_PLAN = NodeState(ordinal=0, at=0)


class _Counterfactual:
    """Plans with the other rules each time that the operator planned.

    The rules see the classes and caps that they set themselves, so they can change a class that
    they assigned, and caps follow when it has settled.
    """

    def __init__(self, overrides: Overrides) -> None:
        self._overrides = overrides
        self._planned_at = 0
        self._nodes: dict[str, NodeState] = {}
        self._replanned: list[str] = []
        self._cached_columns: tuple[int, TwinColumns] | None = None

    def follow(self, cluster_state: ClusterState) -> None:
        """Must run at every batch: a skipped plan is missing from all later ones."""
        if self._overrides.rules is None or cluster_state.planned_at == self._planned_at:
            return
        self._planned_at = cluster_state.planned_at
        made = cluster_state.cluster[CLUSTER].plan
        if made is None or not made.settings:
            return
        rules = self._overrides.rules(rules_of(made.settings))
        if rules.dry_run:
            return
        self._nodes = _planned_nodes(
            self._own(cluster_state), made, rules, cluster_state.planned_at
        )
        theirs = cluster_state.nodes
        self._replanned = [
            n for n, own in self._nodes.items() if own != _with_plan_of(theirs[n], own)
        ]

    def _own(self, cluster_state: ClusterState) -> ClusterState:
        """The cluster state with the classes and caps of the other rules."""
        own = ClusterState()
        own.pods, own.cluster = cluster_state.pods, dict(cluster_state.cluster)
        own.nodes = {
            name: _with_plan_of(self._nodes.get(name, _WITHOUT_PLAN), node)
            for name, node in cluster_state.nodes.items()
        }
        return own

    def shift(self, answer: RecordedAnswer, folded: FoldedState) -> ScoreChange | None:
        """None if the columns of its position do not have its candidates."""
        decision, recorded = answer.decision, answer.weights
        assert isinstance(decision, PrioritizeDecided)
        assert recorded is not None
        weights = self._overrides.weights(recorded) if self._overrides.weights else recorded
        then, twin_columns = folded.twin_columns(), self._twin_columns(folded)
        try:
            now = again(decision, twin_columns, weights)
            assert isinstance(now, PrioritizeDecided)
            pod, before, after = decision.pod, decision.top[0], now.top[0]
            watts = added_watts(decision, then, weights, (before.node, after.node))
        except (KeyError, StopIteration, IndexError, ValueError):
            return None
        return ScoreChange(
            entry=answer.entry,
            pod=f"{pod.namespace}/{pod.name}",
            namespace=pod.namespace,
            workload=pod.workload,
            before=before,
            after=after,
            same_scale=decision.duty == "gpu" or weights.scoring == recorded.scoring,
            watts_before=watts[0],
            watts_after=watts[1],
            over_cap_before=_is_over(then, before),
            over_cap_after=_is_over(twin_columns, after),
            cores=pod.cpu_milli / 1000,
            gpus=pod.gpu_milli / 1000,
        )

    def _twin_columns(self, folded: FoldedState) -> TwinColumns:
        twin_columns = folded.twin_columns()
        if not self._replanned:
            return twin_columns
        if self._cached_columns is None or self._cached_columns[0] != folded.position:
            self._cached_columns = (
                folded.position,
                twin_columns.following(
                    folded.cluster_state, self._replanned_nodes(folded.cluster_state)
                ),
            )
        return self._cached_columns[1]

    def _replanned_nodes(self, cluster_state: ClusterState) -> dict[str, NodeState | None]:
        """Nodes with the newest readings and the classes and caps of the other rules."""
        there = (name for name in self._replanned if name in cluster_state.nodes)
        return {name: _with_plan_of(self._nodes[name], cluster_state.nodes[name]) for name in there}


def _with_plan_of(planned: NodeState, node: NodeState) -> NodeState:
    """The node with the planned fields of `planned`."""
    return replace(node, **{name: getattr(planned, name) for name in _PLANNED_FIELDS})


def _planned_nodes(
    cluster_state: ClusterState, made: PlanMade, rules: Rules, at: int
) -> dict[str, NodeState]:
    """The nodes after these rules planned at the time of a recorded plan."""
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
