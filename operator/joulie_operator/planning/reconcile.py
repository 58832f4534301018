"""Computes plan events from the cluster state, a policy and the settings.

`plan` records all of its inputs but the cluster state in `plan.made`, so that `recompute` makes the
same plan from that event and the cluster state at its position.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from joulie_bus.core.formats import in_force
from joulie_bus.errors import PolicyFailed
from joulie_bus.events import (
    CapsSet,
    DrainingBegun,
    EvictionOrdered,
    NodePlan,
    PlacementClosed,
    PlacementOpened,
    PlanMade,
    Profile,
    ProfileAssigned,
    SleepOrdered,
    TransitionCompleted,
    WakeOrdered,
)
from joulie_bus.events.bounds import clipped
from joulie_operator.planning.cap_orders import capped_nodes
from joulie_operator.planning.caps import Caps, caps_for, current_caps
from joulie_operator.planning.eligible import candidates, demand_of
from joulie_operator.planning.guard import (
    EMPTIED,
    LIMITED,
    OVERDUE,
    GuardInput,
    Hold,
    Stage,
    Transition,
    caps_profile,
    guard_input,
    next_transition,
)
from joulie_operator.planning.measured_caps import CapChoice, cap_choice
from joulie_operator.planning.policies import (
    Assignment,
    DesiredProfiles,
    Policy,
    Share,
    Situation,
    counted,
    desired_profiles,
)
from joulie_operator.planning.power_target import NO_LIMITS, power_limits
from joulie_operator.planning.rules import Rules, rules_of, values_of
from joulie_operator.planning.sleep import SLEEPING_POLICY, PowerChanges, power_changes
from joulie_operator.planning.supply import needed_nodes, serving_pods
from joulie_projections.state.state import ClusterState, NodeState

CODE_VERSION = f"joulie-plan/{in_force('plans')}"  # of policies, guard and intent
_SECOND = 1_000_000_000


class PlanBasis(NamedTuple):
    """The inputs of a plan besides the cluster state, the policy and the settings."""

    view: int
    now: int
    pods_known: bool = True


class Plan(NamedTuple):
    """A plan: its event, the events of the nodes, and the nodes that are held."""

    made: PlanMade
    changes: list[list[NodePlan]]  # grouped by node
    held: dict[str, str]  # nodes whose transition is not allowed yet, and why

    @property
    def events(self) -> list[NodePlan]:
        return [event for group in self.changes for event in group]


class LoadedPolicy(NamedTuple):
    """A policy, and the version of its code."""

    decide: Policy
    code: str = CODE_VERSION


def plan(cluster_state: ClusterState, policy: LoadedPolicy, rules: Rules, basis: PlanBasis) -> Plan:
    nodes = candidates(cluster_state.nodes, rules)
    demand = demand_of(cluster_state)
    situation = Situation(nodes, demand, basis.now / _SECOND, rules.numbers())
    share = _run_policy(policy, situation, rules.policy)
    needs = needed_nodes(cluster_state) if rules.policy == SLEEPING_POLICY else None
    if needs is not None:
        share = serving_pods(share, cluster_state.nodes, nodes, rules, needs)
    capped: set[str] | None = None  # any node may be eco
    if not rules.eco_without_caps:
        capped = capped_nodes(cluster_state, nodes, rules, basis.now)
        share = counted(share, nodes, capped)
    desired = desired_profiles(
        rules.policy,
        share,
        situation,
        floor_always=rules.family_floor == "always",
        capped=capped,
    )
    steps = _Transitions(cluster_state.nodes, rules, basis)
    steps.limit_power(cluster_state, desired.assignments)
    steps.add(desired.assignments)
    steps.add_placement()
    if needs is not None:
        power = power_changes(cluster_state, rules, basis.now, steps.limits, needs)
        steps.add_power(power, pods_known=basis.pods_known)
    return Plan(_plan_made(desired, steps, policy, rules, basis), steps.changes, steps.held)


def _run_policy(policy: LoadedPolicy, situation: Situation, name: str) -> Share:
    """Runs the policy. Any error of a custom policy becomes PolicyFailed, with its name."""
    try:
        share = policy.decide(situation)
        inputs = {key: float(value) for key, value in share.inputs.items()}
        if not all(map(math.isfinite, inputs.values())):
            raise ValueError("an input is not a finite number")
        return share._replace(performance=int(share.performance), inputs=inputs)
    except Exception as error:
        raise PolicyFailed(name, f"{type(error).__name__}: {error}") from error


def recompute(made: PlanMade, cluster_state: ClusterState, policy: LoadedPolicy) -> Plan:
    """The plan behind an event, computed from the cluster state at its position."""
    basis = PlanBasis(made.view, made.now, made.pods_known)
    return plan(cluster_state, policy, rules_of(made.settings), basis)


# --- transitions ------------------------------------------------------------------------------


class _Transitions:
    """Collects the events of each node, up to the limit of changes."""

    def __init__(self, nodes: Mapping[str, NodeState], rules: Rules, basis: PlanBasis) -> None:
        self.changes: list[list[NodePlan]] = []
        self.held: dict[str, str] = {}
        self.transitions: Counter[Stage] = Counter()
        self.power: Counter[str] = Counter()  # empty for a policy without sleep
        self.power_inputs: Mapping[str, float] = {}
        self._nodes = nodes
        self._rules = rules
        self._basis = basis
        self._plan = f"p{basis.view}"
        self._changing = self._recently_changed()
        self.limits = NO_LIMITS
        self.cap_choice = CapChoice()

    def add(self, assignments: Mapping[str, Assignment]) -> None:
        """Performance nodes come first: pods wait for them, and no running pod is at risk."""
        for profile in ("performance", "eco"):
            for name, assignment in assignments.items():
                if assignment.profile == profile:
                    self._step(name, assignment)

    def add_power(self, power: PowerChanges, *, pods_known: bool) -> None:
        """A node that changes its class in this plan does not fall asleep, and no node does while
        its pods are unknown."""
        self.power = Counter(sleep=0, wake=len(power.wake))
        self.power_inputs = power.inputs
        self.held.update(power.held)
        for name, because in power.wake.items():
            self.changes.append([WakeOrdered(plan=self._plan, node=name, because=because)])
        for name, because in power.evict.items() if pods_known else ():
            self.power["evict"] += 1
            self.changes.append([EvictionOrdered(plan=self._plan, node=name, because=because)])
        changing = {events[0].node for events in self.changes}
        for name, because in power.sleep.items():
            if pods_known and name not in changing:
                self.power["sleep"] += 1
                self.changes.append([SleepOrdered(plan=self._plan, node=name, because=because)])

    def add_placement(self) -> None:
        """Closes and opens nodes for power targets."""
        for name, because in sorted(self.limits.closes.items()):
            event = PlacementClosed(plan=self._plan, node=name, because=because)
            self.changes.append([event])
        for name, because in sorted(self.limits.opens.items()):
            self.changes.append([PlacementOpened(plan=self._plan, node=name, because=because)])

    def _step(self, name: str, assignment: Assignment) -> None:
        node = self._nodes[name]
        transition = next_transition(self._guard_input(node), assignment.profile)
        if isinstance(transition, Hold):
            self.held[name] = transition.why
        events = list(
            self._events(
                name, node, transition if isinstance(transition, Transition) else None, assignment
            )
        )
        if not events:
            return
        is_target = transition is None and self.limits is not NO_LIMITS
        if not is_target and not self._is_allowed(name, transition):
            self.held[name] = LIMITED
            return
        self.changes.append(events)
        if isinstance(transition, Transition):
            self.transitions[transition.after] += 1

    def _guard_input(self, node: NodeState) -> GuardInput:
        return guard_input(
            node,
            self._basis.now,
            pods_known=self._basis.pods_known,
            deadline_s=self._rules.drain_deadline_s,
            dwell_s=self._rules.dwell_s,
        )

    def _events(
        self, name: str, node: NodeState, transition: Transition | None, assignment: Assignment
    ) -> Iterator[NodePlan]:
        if transition is None:
            yield from self._caps(name, node, self._settled(node))
            return
        if transition.after == Stage.PERFORMANCE:
            yield from self._caps(name, node, "performance")  # caps are raised before pods arrive
        yield _transition_event(self._plan, name, node, transition, assignment)
        if transition.why == OVERDUE:
            yield from self._caps(name, node, "eco")  # the deadline overrides the pods

    def _caps(self, name: str, node: NodeState, profile: Profile | None) -> Iterator[CapsSet]:
        """Without a profile the node keeps its caps, but for those of single cards."""
        caps = self._class_caps(profile, name, node) if profile else current_caps(node)
        cards = None if profile == "eco" else self.limits.of_cards(name)
        if profile == "eco":
            caps = self.limits.applied(name, caps, node)
        if caps != current_caps(node) or cards != node.standard_gpu_cap_pct:
            yield CapsSet(
                plan=self._plan,
                node=name,
                cpu_cap_pct=caps.cpu_pct,
                gpu_cap_pct=caps.gpu_pct,
                cpu_cap_mw_per_socket=caps.cpu_mw_per_socket,
                gpu_cap_mw=caps.gpu_mw,
                standard_gpu_cap_pct=cards,
            )

    def limit_power(
        self, cluster_state: ClusterState, assignments: Mapping[str, Assignment]
    ) -> None:
        """Finds the caps of these nodes, and those that power targets demand."""
        self.cap_choice = cap_choice(cluster_state, self._rules, self._basis.now)

        def class_caps() -> dict[str, Caps]:
            eco = (name for name, each in assignments.items() if each.profile == "eco")
            return {name: caps for name in eco if (caps := self._eco_caps(name)) is not None}

        def rising() -> set[str]:
            return {name for name, each in assignments.items() if each.profile == "performance"}

        self.limits = power_limits(
            cluster_state, self._rules, self._basis.now, class_caps, rising, assignments
        )

    def _eco_caps(self, name: str) -> Caps | None:
        """The caps of the class of a node that has or gets eco caps; None for other nodes."""
        node = self._nodes[name]
        return self._class_caps("eco", name, node) if self._settled(node) == "eco" else None

    def _settled(self, node: NodeState) -> Profile | None:
        return caps_profile(
            node,
            self._basis.now,
            pods_known=self._basis.pods_known,
            settle_s=self._rules.caps_settle_s,
        )

    def _class_caps(self, profile: Profile, name: str, node: NodeState) -> Caps:
        """Those of the settings; for eco nodes without a measured saving, those of performance."""
        is_capped = profile == "performance" or self.cap_choice.caps(name)
        return caps_for(profile if is_capped else "performance", node, self._rules)

    # --- the limit of changes -----------------------------------------------------------------

    def _recently_changed(self) -> set[str]:
        """The nodes that changed within the last interval."""
        if not self._rules.max_changes:
            return set()
        since = self._basis.now - int(self._rules.interval_s * _SECOND)
        nodes = self._nodes.items()
        return {name for name, node in nodes if max(node.class_at, node.caps_at) > since}

    def _is_allowed(self, name: str, transition: Transition | Hold | None) -> bool:
        """Nodes that count already may go on: half a change is worse than none."""
        ends = isinstance(transition, Transition) and transition.why in (EMPTIED, OVERDUE)
        if not self._rules.max_changes or ends or name in self._changing:
            return True
        if len(self._changing) >= self._rules.max_changes:
            return False
        self._changing.add(name)
        return True


def _transition_event(
    plan: str, name: str, node: NodeState, transition: Transition, assignment: Assignment
) -> NodePlan:
    because = f"{transition.why}; {assignment.why}"
    if transition.after == Stage.DRAINING:
        pods = node.performance_pods
        return DrainingBegun(plan=plan, node=name, performance_pods=pods, because=because)
    profile: Profile = "eco" if transition.after == Stage.ECO else "performance"
    if transition.why in (EMPTIED, OVERDUE):
        return TransitionCompleted(plan=plan, node=name, profile=profile, because=because)
    return ProfileAssigned(plan=plan, node=name, profile=profile, because=because)


# --- the event --------------------------------------------------------------------------------


def _plan_made(
    desired: DesiredProfiles,
    steps: _Transitions,
    policy: LoadedPolicy,
    rules: Rules,
    basis: PlanBasis,
) -> PlanMade:
    return PlanMade(
        plan=f"p{basis.view}",
        policy=rules.policy,
        view=basis.view,
        nodes=len(desired.assignments),
        performance=desired.performance,
        changes=sum(map(len, steps.changes)),
        inputs={**desired.inputs, **_counts(steps)},
        because=clipped("; ".join(_because(desired, steps))),
        now=basis.now,
        code=policy.code,
        settings=values_of(rules),
        pods_known=basis.pods_known,
        dry_run=rules.dry_run,
    )


def _because(desired: DesiredProfiles, steps: _Transitions) -> Iterator[str]:
    yield desired.because
    if steps.cap_choice.because:
        yield steps.cap_choice.because
    yield from steps.limits.because
    if steps.limits.opens:
        why = next(iter(steps.limits.opens.values()))
        yield f"{len(steps.limits.opens)} get pods of class standard again: {why}"
    if steps.power["sleep"]:
        yield f"{steps.power['sleep']} fall asleep"
    if steps.power["wake"]:
        yield f"{steps.power['wake']} wake up"
    if steps.power["evict"]:
        yield f"the pods of {steps.power['evict']} are evicted"
    yield from _hold_counts(steps.held.values())


def _counts(steps: _Transitions) -> dict[str, float]:
    counts: dict[str, float] = {
        f"become_{stage}": n for stage, n in sorted(steps.transitions.items())
    }
    power: dict[str, float] = {f"nodes_to_{change}": n for change, n in sorted(steps.power.items())}
    return {
        **counts,
        **power,
        **steps.power_inputs,
        **steps.limits.inputs,
        **steps.cap_choice.inputs,
        "nodes_changed": len(steps.changes),
        "nodes_held": len(steps.held),
    }


def _hold_counts(held: Iterable[str]) -> list[str]:
    """The number of held nodes per reason."""
    return [f"{count} held: {why}" for why, count in sorted(Counter(held).items())]
