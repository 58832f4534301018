"""The operator's control loop: reads the view, plans, publishes.

A plan is published only if the last plan in the broker is the one that this plan was computed from
(compare-and-set). Of two operators one wins, and the other plans again.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.core.pacing import rest_s
from joulie_bus.errors import BusError, ExpectationFailed, PolicyFailed, Undecodable
from joulie_bus.events import AnyEvent, NodePlan, PlanEvent, PlanMade, codec
from joulie_bus.log.producer import Clock, Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.batch_limits import MAX_BATCH
from joulie_bus.streams.records import Stored
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_operator import plan_metrics
from joulie_operator.observe.cluster_visibility import ClusterVisibility, full_visibility
from joulie_operator.planning.power_target import TargetInForce, targets_in_force
from joulie_operator.planning.reconcile import Plan, PlanBasis, plan
from joulie_operator.plugins import load_policy
from joulie_operator.settings import OperatorSettings
from joulie_projections.state.completeness import ViewAges
from joulie_projections.view.view import View

CHECK_INTERVAL_S = 0.5  # shortest time between two reconciliations
SETTLED_S = 5.0  # longest wait until the view contains an own plan
log = get_logger("operator")


class PlanningStopped(NamedTuple):
    """Why no plans are made. `reason` is one of `REASONS`, and a metric label."""

    reason: str
    why: str


REASONS = ("view", "cluster", "policy", "broker")


def _clear_stops() -> None:
    for reason in REASONS:
        metrics.PLANS_STOPPED.labels(reason=reason).set(0)


class Operator:
    """Plans at least once per interval, and whenever a plan changes something."""

    def __init__(
        self,
        bus: Log,
        subjects: Subjects,
        view: View,
        settings: OperatorSettings,
        visibility: Callable[[], ClusterVisibility] = full_visibility,
        clock: Clock | None = None,
    ) -> None:
        self._bus = bus
        self._subjects = subjects
        self._view = view
        self._settings = settings
        self._rules = settings.rules()
        self._policy = load_policy(settings.policy)
        self._visibility = visibility
        self._clock = clock or view.now_ns
        self._producer = Producer("operator-plan", subjects, self._clock)
        self._refusals = Refusals("plans", "not made; the next reconciliation plans again")
        self._looked = 0.0
        self._stopped: PlanningStopped | None = None

    async def run(self) -> None:
        """Runs until cancelled. Errors are logged and retried."""
        _clear_stops()
        try:
            while True:
                began, targets = time.process_time(), self._targets()
                self._report_stop(await self._attempt())
                spent_s = time.process_time() - began
                await self._rest(pause_s(spent_s, self._settings.interval_s), targets)
        finally:
            _clear_stops()  # another operator may plan from now on
            plan_metrics.clear()

    async def _rest(self, pause: float, targets: Sequence[TargetInForce]) -> None:
        """A power target that begins, changes or ends does not wait for the end of a long pause."""
        ends = time.monotonic() + pause
        while (left := ends - time.monotonic()) > 0:
            await asyncio.sleep(min(left, CHECK_INTERVAL_S))
            if self._targets() != targets:
                return

    def _targets(self) -> list[TargetInForce]:
        return targets_in_force(self._view.cluster_state, self._rules, self._clock())

    async def _attempt(self) -> PlanningStopped | None:
        try:
            return await self.reconcile_once()
        except PolicyFailed as error:
            return PlanningStopped("policy", str(error))
        except BusError as error:
            self._refusals.observe(error)
            return PlanningStopped("broker", str(error))

    def decide(self) -> Plan:
        """The plan for the present cluster state."""
        began = time.process_time()
        basis = PlanBasis(self._view.position, self._clock(), self._visibility().pods_known)
        made = plan(self._view.cluster_state, self._policy, self._rules, basis)
        metrics.PLAN_CPU_SECONDS.observe(time.process_time() - began)
        plan_metrics.show(made, self._view.cluster_state)
        return made

    async def reconcile_once(self) -> PlanningStopped | None:
        """Plans once, and publishes the plan if it is due or changes something."""
        stopped = self._stop_reason()
        if stopped is not None or not self._view.cluster_state.nodes:
            return stopped
        # The view may move on while the broker answers; the plan is made from this one.
        known = self._view.cluster_state.plan
        made = self.decide()
        due = time.monotonic() - self._looked >= self._settings.interval_s
        if not due and (not made.changes or self._rules.dry_run):
            return None
        stored = await self._bus.last(Stream.PLAN, self._subjects.plan_meta)
        if not _is_newest(known, stored) and not await self._plans_are_gone():
            return None  # the view does not contain the newest plan yet
        stopped = await self._publish(made, stored.sequence if stored else 0)
        self._looked = time.monotonic()
        return stopped

    def _stop_reason(self) -> PlanningStopped | None:
        """Why planning is stopped; nodes keep their profiles and caps meanwhile."""
        limit = self._settings.max_view_age_s
        if not self._view.is_ready:
            return PlanningStopped("view", "the view has not been loaded yet")
        if self._view.age_s > limit:
            return PlanningStopped("view", _old_view(self._view.ages, limit))
        problem = self._visibility().problem
        return PlanningStopped("cluster", problem) if problem else None

    def _report_stop(self, stopped: PlanningStopped | None) -> None:
        """Logs when planning stops and when it resumes; the metric shows the present state."""
        before, self._stopped = self._stopped, stopped
        if before is not None:
            metrics.PLANS_STOPPED.labels(reason=before.reason).set(0)
        if stopped is not None:
            metrics.PLANS_STOPPED.labels(reason=stopped.reason).set(1)
            if stopped != before:
                log.warning("plans_stopped", reason=stopped.reason, why=stopped.why)
        elif before is not None:
            log.info("plans_resumed", after=before.reason)

    async def _plans_are_gone(self) -> bool:
        """Whether the stream continues a lost one, and holds no plan yet."""
        state = await self._bus.state(Stream.PLAN)
        return state.first > 1 and not state.holds_messages

    async def _publish(self, made: Plan, expected: int) -> PlanningStopped | None:
        """Publishes in batches, each under compare-and-set on the one before."""
        for number, events in enumerate(batches(made), 1):
            messages = [self._producer.stamp(event, corr=made.made.plan) for event in events]
            try:
                await self._bus.append(Stream.PLAN, messages, {messages[0].subject: expected})
            except ExpectationFailed as error:
                log.info("plan_lost_the_race", plan=made.made.plan, why=str(error))
                return None
            stored = await self._bus.last(Stream.PLAN, self._subjects.plan_meta)
            if stored is None or stored.data != messages[0].data:
                # Another operator has planned from this part and takes over.
                log.info("plan_overtaken", plan=made.made.plan, part=number)
                return None
            expected = stored.sequence
        self._refusals.ended()
        self._report_plan(made)
        return await self._wait_for_own_plan(expected)

    def _report_plan(self, made: Plan) -> None:
        metrics.PLANS.labels(policy=made.made.policy).inc()
        if made.changes:
            log.info(
                "would_plan" if made.made.dry_run else "planned",
                plan=made.made.plan,
                changes=made.made.changes,
                why=made.made.because,
            )

    async def _wait_for_own_plan(self, sequence: int) -> PlanningStopped | None:
        """Waits until the view contains the plan, so that the next one builds on it."""
        deadline = time.monotonic() + SETTLED_S
        while time.monotonic() < deadline:
            stored = await self._bus.last(Stream.PLAN, self._subjects.plan_meta)
            known = self._view.cluster_state.plan
            if stored is None or stored.sequence != sequence or _is_newest(known, stored):
                return None
            await asyncio.sleep(0.02)
        return PlanningStopped(
            "view", f"the view does not contain the last plan {SETTLED_S:g} s after it was stored"
        )


def pause_s(spent_s: float, interval_s: float) -> float:
    """After a plan that took this processor time. Plans take a small share of a core, but an
    interval without a plan is too long."""
    return max(CHECK_INTERVAL_S, min(interval_s, rest_s(spent_s)))


def _old_view(ages: ViewAges, limit_s: float) -> str:
    if ages.heard_ms > limit_s * 1000:
        return f"the projector has sent nothing for over {limit_s:g} s; does one run?"
    return f"the view is over {limit_s:g} s behind the broker; `joulie status` names the cause"


def batches(made: Plan) -> list[list[PlanEvent]]:
    """Each batch starts with `plan.made`. A dry run has nothing else."""
    parts = list(_parts([] if made.made.dry_run else made.changes)) or [[]]
    count = len(parts)
    return [
        [replace(made.made, part=number, parts=count), *part]
        for number, part in enumerate(parts, 1)
    ]


def _parts(changes: Sequence[Sequence[NodePlan]]) -> Iterator[list[NodePlan]]:
    """Splits changes into batches; the changes of one node stay in one batch."""
    part: list[NodePlan] = []
    for group in changes:
        if len(part) + len(group) > MAX_BATCH - 1:
            yield part
            part = []
        part.extend(group)
    if part:
        yield part


def _is_newest(known: PlanMade | None, stored: Stored | None) -> bool:
    """Whether a view that knows this plan contains the newest one."""
    if stored is None:
        return known is None
    newest = _decode_plan(stored)
    if newest is None:
        log.warning(
            "plan_unreadable", sequence=stored.sequence, what="planning from the view alone"
        )
        return True
    return newest == known


def _decode_plan(stored: Stored) -> AnyEvent | None:
    """None if the message is not an event: clients can make the broker reply to this subject.

    Projectors ignore such a message, so no view will contain it.
    """
    try:
        return codec.decoded(stored.data, "plan")
    except Undecodable:
        return None
