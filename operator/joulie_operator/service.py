"""The running operator: looks at the view, decides, publishes. Two of them do no harm.

A plan is published only if the last plan that the broker holds is the one that this plan was made
upon (compare-and-set), so that of two operators one wins and the other looks again.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from joulie_bus.errors import BusError, ExpectationFailed, PolicyFailed, Undecodable
from joulie_bus.events import AnyEvent, NodePlan, PlanEvent, codec
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.pacing import rest_s
from joulie_bus.streams.log import MAX_BATCH, Log
from joulie_bus.streams.producer import Clock, Producer
from joulie_bus.streams.records import Stored
from joulie_bus.streams.refusals import Refusals
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_operator.observe.cluster_visibility import ClusterVisibility, clear_sight
from joulie_operator.planning.plugins import chosen
from joulie_operator.planning.reconcile import Moment, Plan, plan
from joulie_operator.settings import OperatorSettings
from joulie_projections.view.view import View

LOOK_S = 0.5  # how soon after an event the operator looks again
SETTLED_S = 5.0  # a plan is visible in the view long before
log = get_logger("operator")


class Stopped(NamedTuple):
    """Why no plans are made. `reason` is one of `REASONS`; it labels a metric."""

    reason: str
    why: str


REASONS = ("view", "cluster", "policy", "broker")


def _no_stops() -> None:
    for reason in REASONS:
        metrics.PLANS_STOPPED.labels(reason=reason).set(0)


class Operator:
    def __init__(
        self,
        bus: Log,
        subjects: Subjects,
        view: View,
        settings: OperatorSettings,
        sight: Callable[[], ClusterVisibility] = clear_sight,
        clock: Clock = time.time_ns,
    ) -> None:
        self._bus = bus
        self._subjects = subjects
        self._view = view
        self._settings = settings
        self._rules = settings.rules()
        self._policy = chosen(settings.policy)
        self._sight = sight
        self._clock = clock
        self._producer = Producer("operator-plan", subjects, clock)
        self._refused = Refusals("plans", "not made; the next look plans again")
        self._looked = 0.0
        self._stopped: Stopped | None = None

    async def run(self) -> None:
        """For ever. Whatever fails is told, and looked at again."""
        _no_stops()
        try:
            while True:
                began = time.process_time()
                self._tell_stop(await self._looked_at())
                spent_s = time.process_time() - began
                await asyncio.sleep(max(LOOK_S, rest_s(spent_s)))
        finally:
            _no_stops()  # from now on it is not ours to say

    async def _looked_at(self) -> Stopped | None:
        try:
            return await self.look()
        except PolicyFailed as error:
            return Stopped("policy", str(error))
        except TimeoutError:
            return Stopped("broker", "no answer in time")
        except BusError as error:
            self._refused.saw(error)
            return Stopped("broker", str(error))

    def decide(self) -> Plan:
        """What the policy wants of the world as it is now."""
        began = time.process_time()
        moment = Moment(self._view.position, self._clock(), self._sight().pods_known)
        made = plan(self._view.cluster_state, self._policy, self._rules, moment)
        metrics.PLAN_CPU_SECONDS.observe(time.process_time() - began)
        metrics.NODES_HELD.set(len(made.held))
        return made

    async def look(self) -> Stopped | None:
        """One look at the cluster, and a plan if there is something to plan."""
        stopped = self._obstacle()
        if stopped is not None or not self._view.cluster_state.nodes:
            return stopped
        made = self.decide()
        due = time.monotonic() - self._looked >= self._settings.interval_s
        if not due and (not made.changes or self._rules.dry_run):
            return None
        stored = await self._bus.last(Stream.PLAN, self._subjects.plan_meta)
        if not self._is_upon(stored):
            return None  # the view has not seen the newest plan yet
        await self._publish(made, stored.sequence if stored else 0)
        self._looked = time.monotonic()
        return None

    def _obstacle(self) -> Stopped | None:
        """Nodes keep what they have while nobody knows how they are."""
        limit = self._settings.max_view_age_s
        if not self._view.is_ready:
            return Stopped("view", "the view has not been loaded yet")
        if self._view.age_s > limit:
            return Stopped("view", f"the view is older than {limit:g} s; does a projector run?")
        blind = self._sight().blind
        return Stopped("cluster", blind) if blind else None

    def _tell_stop(self, stopped: Stopped | None) -> None:
        """Once when it stops, once when it goes on; the metric says it all the time."""
        before, self._stopped = self._stopped, stopped
        if before is not None:
            metrics.PLANS_STOPPED.labels(reason=before.reason).set(0)
        if stopped is not None:
            metrics.PLANS_STOPPED.labels(reason=stopped.reason).set(1)
            if stopped != before:
                log.warning("plans_stopped", reason=stopped.reason, why=stopped.why)
        elif before is not None:
            log.info("plans_go_on", after=before.reason)

    def _is_upon(self, stored: Stored | None) -> bool:
        cluster = next(iter(self._view.cluster_state.cluster.values()), None)
        known = cluster.plan if cluster else None
        if stored is None:
            return known is None
        newest = _plan_in(stored)
        if newest is None:
            log.warning("plan_unreadable", sequence=stored.sequence, what="planned upon the view")
            return True
        return newest == known

    async def _publish(self, made: Plan, expected: int) -> None:
        """In as many batches as it takes, each under compare-and-set on the one before."""
        for number, events in enumerate(batches(made), 1):
            messages = [self._producer.stamp(event, corr=made.made.plan) for event in events]
            try:
                await self._bus.append(Stream.PLAN, messages, {messages[0].subject: expected})
            except ExpectationFailed as error:
                log.info("plan_lost_the_race", plan=made.made.plan, why=str(error))
                return
            stored = await self._bus.last(Stream.PLAN, self._subjects.plan_meta)
            if stored is None or stored.data != messages[0].data:
                # Another operator planned upon this part; the rest is its business now.
                log.info("plan_overtaken", plan=made.made.plan, part=number)
                return
            expected = stored.sequence
        self._refused.ended()
        self._tell(made)
        await self._await_own_plan(expected)

    def _tell(self, made: Plan) -> None:
        metrics.PLANS.labels(policy=made.made.policy).inc()
        if made.changes:
            log.info(
                "would_plan" if made.made.dry_run else "planned",
                plan=made.made.plan,
                changes=made.made.changes,
                why=made.made.because,
            )

    async def _await_own_plan(self, sequence: int) -> None:
        """Looks again only at a world that has this plan in it."""
        async with asyncio.timeout(SETTLED_S):
            while True:
                stored = await self._bus.last(Stream.PLAN, self._subjects.plan_meta)
                if stored is None or stored.sequence != sequence or self._is_upon(stored):
                    return
                await asyncio.sleep(0.02)


def batches(made: Plan) -> list[list[PlanEvent]]:
    """Each led by the plan's own event. A dry run has nothing but that."""
    parts = list(_parts([] if made.made.dry_run else made.changes)) or [[]]
    count = len(parts)
    return [
        [replace(made.made, part=number, parts=count), *part]
        for number, part in enumerate(parts, 1)
    ]


def _parts(changes: Sequence[Sequence[NodePlan]]) -> Iterator[list[NodePlan]]:
    """The changes of one node are never torn apart."""
    part: list[NodePlan] = []
    for group in changes:
        if len(part) + len(group) > MAX_BATCH - 1:
            yield part
            part = []
        part.extend(group)
    if part:
        yield part


def _plan_in(stored: Stored) -> AnyEvent | None:
    """None for what is no event: any user can have the broker send its answers to this subject.

    No projector folds that, so no view can be waited for that has it in it.
    """
    try:
        return codec.read(codec.open_envelope(stored.data, "plan"), "plan")
    except Undecodable:
        return None
