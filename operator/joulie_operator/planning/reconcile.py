"""From a world, a policy and the settings to plan events. Pure: the same again next year.

`plan` takes everything that it needs and writes all of it into `plan.made`, so that `again` makes
the same plan from that event and the world at its position.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from joulie_bus.errors import PolicyFailed
from joulie_bus.events import (
    CapsSet,
    DrainingBegun,
    NodePlan,
    PlanMade,
    Profile,
    ProfileAssigned,
    TransitionCompleted,
)
from joulie_bus.events.bounds import clipped
from joulie_operator.planning.caps import in_force, intended
from joulie_operator.planning.eligible import candidates, demand_of, selector
from joulie_operator.planning.guard import (
    EMPTIED,
    LIMITED,
    OVERDUE,
    Guarded,
    Held,
    Move,
    Stage,
    caps_profile,
    guarded,
    next_move,
)
from joulie_operator.planning.policies import (
    Policy,
    Seat,
    Share,
    Situation,
    Wanted,
    by_density,
    wanted,
)
from joulie_operator.planning.rules import Rules, rules_of, values_of
from joulie_projections.state.state import ClusterState, NodeState

CODE_VERSION = "joulie-plan/2"  # of policies, guard and intent
_SECOND = 1_000_000_000


class Moment(NamedTuple):
    """What a plan rests on beside the world."""

    view: int
    now: int
    pods_known: bool = True


class Plan(NamedTuple):
    made: PlanMade
    changes: list[list[NodePlan]]  # those of one node stay together
    held: dict[str, str]  # nodes that may not yet become what they shall be, and why

    @property
    def events(self) -> list[NodePlan]:
        return [event for group in self.changes for event in group]


class Chosen(NamedTuple):
    """A policy, and where it is from."""

    decide: Policy
    code: str = CODE_VERSION


def plan(cluster_state: ClusterState, policy: Chosen, rules: Rules, moment: Moment) -> Plan:
    spread = rules.equal_nodes == "spread"
    nodes = by_density(candidates(cluster_state.nodes, selector(rules.selector), spread=spread))
    demand = demand_of(cluster_state)
    situation = Situation(nodes, demand, moment.now / _SECOND, rules.numbers())
    asked = wanted(
        rules.policy,
        _answer(policy, situation, rules.policy),
        situation,
        floor_always=rules.family_floor == "always",
    )
    steps = _Steps(cluster_state.nodes, rules, moment)
    steps.take(asked.seats)
    return Plan(_made(asked, steps, policy, rules, moment), steps.changes, steps.held)


def _answer(policy: Chosen, situation: Situation, name: str) -> Share:
    """A policy may be anybody's: what it does wrong is told under its name."""
    try:
        share = policy.decide(situation)
        inputs = {key: float(value) for key, value in share.inputs.items()}
        if not all(map(math.isfinite, inputs.values())):
            raise ValueError("an input that is no finite number")
        return share._replace(performance=int(share.performance), inputs=inputs)
    except Exception as error:
        raise PolicyFailed(name, f"{type(error).__name__}: {error}") from error


def again(made: PlanMade, cluster_state: ClusterState, policy: Chosen) -> Plan:
    """The plan behind an event, from the world at its position."""
    moment = Moment(made.view, made.now, made.pods_known)
    return plan(cluster_state, policy, rules_of(made.settings), moment)


# --- what happens next ------------------------------------------------------------------------


class _Steps:
    """Node by node, until as many change as may."""

    def __init__(self, nodes: Mapping[str, NodeState], rules: Rules, moment: Moment) -> None:
        self.changes: list[list[NodePlan]] = []
        self.held: dict[str, str] = {}
        self.moves: Counter[Stage] = Counter()
        self._nodes = nodes
        self._rules = rules
        self._moment = moment
        self._plan = f"p{moment.view}"
        self._changing = self._recent()

    def take(self, seats: Mapping[str, Seat]) -> None:
        """Whoever shall perform goes first: pods wait for them, and nothing can be hurt."""
        for profile in ("performance", "eco"):
            for name, seat in seats.items():
                if seat.profile == profile:
                    self._step(name, seat)

    def _step(self, name: str, seat: Seat) -> None:
        node = self._nodes[name]
        move = next_move(self._guarded(node), seat.profile)
        if isinstance(move, Held):
            self.held[name] = move.why
        events = list(self._events(name, node, move if isinstance(move, Move) else None, seat))
        if not events:
            return
        if not self._may_change(name, move):
            self.held[name] = LIMITED
            return
        self.changes.append(events)
        if isinstance(move, Move):
            self.moves[move.after] += 1

    def _guarded(self, node: NodeState) -> Guarded:
        return guarded(
            node,
            self._moment.now,
            pods_known=self._moment.pods_known,
            deadline_s=self._rules.drain_deadline_s,
            dwell_s=self._rules.dwell_s,
        )

    def _events(
        self, name: str, node: NodeState, move: Move | None, seat: Seat
    ) -> Iterator[NodePlan]:
        if move is None:
            settled = caps_profile(
                node,
                self._moment.now,
                pods_known=self._moment.pods_known,
                settle_s=self._rules.caps_settle_s,
            )
            yield from self._caps(name, node, settled)
            return
        if move.after == Stage.PERFORMANCE:
            yield from self._caps(name, node, "performance")  # room first, then whoever needs it
        yield _moved(self._plan, name, node, move, seat)
        if move.why == OVERDUE:
            yield from self._caps(name, node, "eco")  # nobody waits for those pods any more

    def _caps(self, name: str, node: NodeState, profile: Profile | None) -> Iterator[CapsSet]:
        if profile is None:
            return
        meant = intended(profile, node, self._rules)
        if meant != in_force(node):
            yield CapsSet(
                plan=self._plan,
                node=name,
                cpu_cap_pct=meant.cpu_pct,
                gpu_cap_pct=meant.gpu_pct,
                cpu_cap_mw_per_socket=meant.cpu_mw_per_socket,
                gpu_cap_mw=meant.gpu_mw,
            )

    # --- how much at once ---------------------------------------------------------------------

    def _recent(self) -> set[str]:
        """Nodes that changed within the last interval."""
        if not self._rules.max_changes:
            return set()
        since = self._moment.now - int(self._rules.interval_s * _SECOND)
        nodes = self._nodes.items()
        return {name for name, node in nodes if max(node.class_at, node.caps_at) > since}

    def _may_change(self, name: str, move: Move | Held | None) -> bool:
        """Who was counted already goes on: half a change is worse than none."""
        ends = isinstance(move, Move) and move.why in (EMPTIED, OVERDUE)
        if not self._rules.max_changes or ends or name in self._changing:
            return True
        if len(self._changing) >= self._rules.max_changes:
            return False
        self._changing.add(name)
        return True


def _moved(plan: str, name: str, node: NodeState, move: Move, seat: Seat) -> NodePlan:
    because = f"{move.why}; {seat.why}"
    if move.after == Stage.DRAINING:
        pods = node.performance_pods
        return DrainingBegun(plan=plan, node=name, performance_pods=pods, because=because)
    profile: Profile = "eco" if move.after == Stage.ECO else "performance"
    if move.why in (EMPTIED, OVERDUE):
        return TransitionCompleted(plan=plan, node=name, profile=profile, because=because)
    return ProfileAssigned(plan=plan, node=name, profile=profile, because=because)


# --- why --------------------------------------------------------------------------------------


def _made(asked: Wanted, steps: _Steps, policy: Chosen, rules: Rules, moment: Moment) -> PlanMade:
    return PlanMade(
        plan=f"p{moment.view}",
        policy=rules.policy,
        view=moment.view,
        nodes=len(asked.seats),
        performance=asked.performance,
        changes=sum(map(len, steps.changes)),
        inputs={**asked.inputs, **_counts(steps)},
        because=clipped("; ".join((asked.because, *_told(steps.held.values())))),
        now=moment.now,
        code=policy.code,
        settings=values_of(rules),
        pods_known=moment.pods_known,
        dry_run=rules.dry_run,
    )


def _counts(steps: _Steps) -> dict[str, float]:
    moved: dict[str, float] = {f"become_{stage}": n for stage, n in sorted(steps.moves.items())}
    return {**moved, "nodes_changed": len(steps.changes), "nodes_held": len(steps.held)}


def _told(held: Iterable[str]) -> list[str]:
    """How many wait, for what."""
    return [f"{count} held: {why}" for why, count in sorted(Counter(held).items())]
