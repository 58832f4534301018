"""The running operator: looks at the view, decides, publishes. Two of them do no harm.

A plan is published only if the last plan that the broker holds is the one that this plan was made
upon (compare-and-set), so that of two operators one wins and the other looks again.
"""

import asyncio
import time
from collections.abc import Sequence

from msgspec.structs import replace

from joulie_bus import codec, metrics
from joulie_bus.codec import Envelope
from joulie_bus.errors import BusError, ExpectationFailed
from joulie_bus.events import PlanEvent, PlanMade
from joulie_bus.log import MAX_BATCH, Log
from joulie_bus.logging import get_logger
from joulie_bus.producer import Producer
from joulie_bus.records import Stored
from joulie_bus.subjects import Stream, Subjects
from joulie_operator.decide import decide
from joulie_operator.reconcile import Plan
from joulie_operator.settings import OperatorSettings
from joulie_projections.view import View

LOOK_S = 0.5  # how soon after an event the operator looks again
SETTLED_S = 5.0  # a plan is visible in the view long before
log = get_logger("operator")


class Operator:
    def __init__(
        self, bus: Log, subjects: Subjects, view: View, settings: OperatorSettings
    ) -> None:
        self._bus = bus
        self._subjects = subjects
        self._view = view
        self._settings = settings
        self._producer = Producer("operator-plan", subjects, time.time_ns)
        self._looked = 0.0

    async def run(self) -> None:
        """For ever. Whatever fails is told, and looked at again."""
        while True:
            try:
                await self._reconcile()
            except (BusError, TimeoutError) as error:
                log.warning("not_planned", error=str(error), what="looked at again")
            await asyncio.sleep(LOOK_S)

    def decide(self) -> Plan:
        """What the policy wants of the world as it is now."""
        return decide(self._view.world.nodes, self._view.position, self._settings.rules())

    async def _reconcile(self) -> None:
        if not self._view.is_ready or not self._view.world.nodes:
            return
        made = self.decide()
        due = time.monotonic() - self._looked >= self._settings.interval_s
        if not made.changes and not due:
            return
        stored = await self._bus.last(Stream.PLAN, self._subjects.plan_meta)
        if not self._is_upon(stored):
            return  # the view has not seen the newest plan yet
        await self._publish(made, stored.sequence if stored else 0)
        self._looked = time.monotonic()

    def _is_upon(self, stored: Stored | None) -> bool:
        cluster = next(iter(self._view.world.cluster.values()), None)
        known = cluster.plan if cluster else None
        if stored is None:
            return known is None
        newest = codec.read(_envelope(stored), "plan")
        return newest == known

    async def _publish(self, made: Plan, expected: int) -> None:
        """In as many batches as it takes, each under compare-and-set on the one before."""
        parts = _parts(made.changes)
        for number, part in enumerate(parts, 1):
            lead = made.made if len(parts) == 1 else _part_of(made.made, number, len(parts))
            events = [lead, *part]
            messages = [self._producer.stamp(event, corr=lead.plan) for event in events]
            try:
                await self._bus.append(Stream.PLAN, messages, expected)
            except ExpectationFailed as error:
                log.info("plan_lost_the_race", plan=lead.plan, why=str(error))
                return
            stored = await self._bus.last(Stream.PLAN, self._subjects.plan_meta)
            if stored is None or _envelope(stored).id != messages[0].id:
                log.info("plan_overtaken", plan=lead.plan, part=number)
                return  # another operator planned upon this part; the rest is its business now
            expected = stored.sequence
        metrics.PLANS.labels(policy=made.made.policy).inc()
        if made.changes:
            log.info(
                "planned", plan=made.made.plan, changes=len(made.changes), why=made.made.because
            )
        await self._await_own_plan(expected)

    async def _await_own_plan(self, sequence: int) -> None:
        """Looks again only at a world that has this plan in it."""
        async with asyncio.timeout(SETTLED_S):
            while True:
                stored = await self._bus.last(Stream.PLAN, self._subjects.plan_meta)
                if stored is None or stored.sequence != sequence or self._is_upon(stored):
                    return
                await asyncio.sleep(0.02)


def _envelope(stored: Stored) -> Envelope:
    return codec.open_envelope(stored.data, "plan")


def _parts(changes: Sequence[PlanEvent]) -> list[Sequence[PlanEvent]]:
    size = MAX_BATCH - 1
    return [changes[at : at + size] for at in range(0, max(1, len(changes)), size)]


def _part_of(made: PlanMade, number: int, of: int) -> PlanMade:
    return replace(made, because=f"{made.because} (part {number} of {of})")
