"""`joulie agent --caps`: carries out the caps that the operator orders for this node."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

import msgspec

from joulie_agent.caps.actuators import Actuator
from joulie_agent.caps.holders import PodsOfCards, safe_of
from joulie_agent.caps.settable import NO_LIMIT, RecentRefusals, settable
from joulie_agent.caps.writer import NOTHING, Order, Outcome, Writer
from joulie_bus.errors import BusError
from joulie_bus.events import CapOrder, CapsApplied, CapsRefused, CapsSettable, Fact
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.subjects import Subjects, cap_writer_name

LEASE_S = 60.0  # without an order for so long, its caps hold no longer
CHECK_S = 5.0  # a driver may be reloaded, and another program may set a limit
AGAIN_S = 600.0
REPEAT_S = 60.0  # of what can be set; the operator counts it for three minutes
ENDING_S = 5.0  # for the last report
Facts = tuple[CapsApplied, CapsRefused | None]
log = get_logger("caps")
_read = msgspec.msgpack.Decoder(CapOrder).decode


class CapService:
    """Holds the newest order for the time of its lease.

    `run` needs no broker: an earlier life of this program may have set limits, and they are given
    back also while no broker can be reached.
    """

    def __init__(
        self,
        subjects: Subjects,
        node: str,
        writer: Writer,
        find: Callable[[], Sequence[Actuator]],
        pods_of_cards: PodsOfCards,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._pods_of_cards = pods_of_cards
        self._subject = subjects.caps(node)
        self._writer = writer
        self._find = find
        self._clock = clock
        self._producer = Producer(cap_writer_name(node), subjects, time.time_ns)
        self._refused = Refusals("caps", "what was applied is published when the broker is back")
        self._bus: Log | None = None
        self._order: CapOrder | None = None
        self._until_s = clock() + LEASE_S  # limits of an earlier life wait so long for an order
        self._safe_until_s = 0.0
        self._received = asyncio.Event()
        self._published: tuple[Facts, float] | None = None
        self._recently_refused = RecentRefusals(clock)
        self._reported: tuple[CapsSettable, float] | None = None
        self._has_ended = False
        self._is_safe = False  # whether the safe caps are in force

    async def run(self) -> None:
        """Runs until cancelled, and then gives the limits back."""
        try:
            while True:
                await self.carry_out()
                await wait_and_clear(self._received, CHECK_S)
        except Exception as error:
            self._failed(f"the writer failed: {type(error).__name__}: {error}")
            raise
        finally:
            self._order, self._until_s = None, self._clock()
            await self.carry_out()
            if (task := asyncio.current_task()) is not None and task.cancelling():
                await self._take_back()

    async def follow(self, bus: Log) -> None:
        """Takes orders from this bus, and publishes what became of them and what can be set, until
        cancelled. It ends after `run`, which has the last reports."""
        self._bus = bus
        async with bus.listening(self._subject, self.receive):
            while True:
                await self._report(self.settable())
                await asyncio.sleep(CHECK_S)

    def settable(self) -> CapsSettable:
        """What can be set now. It is reported beside `run`, which must give limits back even while
        a broker does not answer."""
        if self._has_ended:
            return CapsSettable(node=self._node, because="the writer has ended")
        actuators = self._find()
        obstacles = self._writer.obstacles(actuators)
        return settable(self._node, actuators, obstacles, self._recently_refused)

    def _failed(self, why: str) -> None:
        found = self._find()
        self._recently_refused.observe([Outcome(each.name, each.kind, None, why) for each in found])

    async def _take_back(self) -> None:
        self._has_ended = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                await self._report(self.settable())

    async def _report(self, found: CapsSettable) -> None:
        """When it changed, and again as a sign of life."""
        now = self._clock()
        if self._reported and self._reported[0] == found and now < self._reported[1] + REPEAT_S:
            return
        if await self._is_published([found]):
            self._reported = (found, now)

    def receive(self, data: bytes) -> None:
        """An order of an older state than the one that is held is left out."""
        try:
            order = _read(data)
        except msgspec.DecodeError as error:
            log.warning("order_unreadable", why=str(error), what="it is left out")
            return
        is_newer = self._order is None or order.view >= self._order.view
        if order.node == self._node and (is_newer or self._is_over()):
            now = self._clock()
            self._order, self._until_s = order, now + LEASE_S
            self._safe_until_s = now + order.safe_s
            self._received.set()

    async def carry_out(self) -> None:
        """Sets what is ordered, or the safe caps once the lease of the order is over; otherwise
        gives back what an earlier order set."""
        if self._order is None and not self._is_over():
            return
        order, wanted = await self._in_force()
        self._tell(wanted)
        outcomes = self._writer.carry_out(wanted, self._find())
        self._recently_refused.observe(outcomes)
        await self._publish(facts_of(self._node, order, wanted, outcomes))

    async def _in_force(self) -> tuple[CapOrder | None, Order]:
        order = self._order
        if order is not None and not self._is_over():
            return order, wanted_of(order)
        if order is not None and self._clock() < self._safe_until_s:
            return order, safe_of(order, await self._pods_of_cards() if order.safe_cards else {})
        return None, NOTHING

    def _tell(self, wanted: Order) -> None:
        """Once for each time without orders."""
        is_lost = self._order is not None and self._is_over() and wanted != NOTHING
        if is_lost and not self._is_safe:
            left_s = round(self._safe_until_s - self._clock())
            what = f"the safe caps of the power target hold for {left_s} s more"
            log.warning("orders_stopped", node=self._node, what=what)
        self._is_safe = is_lost

    def _is_over(self) -> bool:
        return self._clock() >= self._until_s

    async def _publish(self, facts: Facts) -> None:
        """When they changed, and now and then for a log that has lost them."""
        now = self._clock()
        if self._published and self._published[0] == facts and now < self._published[1] + AGAIN_S:
            return
        if await self._is_published([fact for fact in facts if fact]):
            self._published = (facts, now)

    async def _is_published(self, facts: Sequence[Fact]) -> bool:
        if self._bus is None:
            return False
        try:
            await self._bus.publish([self._producer.stamp(fact) for fact in facts])
        except BusError as error:
            self._refused.observe(error)
            return False
        self._refused.ended()
        return True


def wanted_of(order: CapOrder) -> Order:
    cpu = order.cpu_mw_per_socket
    cpu_uw = None if cpu is None else cpu * 1000
    return Order(cpu_uw, order.gpu_mw, order.card_mw, order.clock_pct)


def facts_of(
    node: str, order: CapOrder | None, wanted: Order, outcomes: Sequence[Outcome]
) -> Facts:
    """A cap counts as applied if all limits of its kind are as ordered: a single one that is not
    may draw up to its own limit. Cards that are ordered one by one count one by one."""
    plan = order.plan if order else ""
    cpu, gpu, clock = (_applied(kind, wanted, outcomes) for kind in ("cpu", "gpu", "clocks"))
    applied = CapsApplied(
        node=node,
        plan=plan,
        cpu_mw_per_socket=None if cpu is None else cpu // 1000,
        gpu_mw=None if wanted.card_mw else gpu,
        card_mw=_applied_cards(wanted, outcomes) if wanted.card_mw else {},
        clock_mhz=clock,
    )
    reasons = [f"{each.name}: {each.refused}" for each in outcomes if each.refused]
    missing = _without_actuators(wanted, outcomes)
    because = "\n".join([*reasons, *missing])
    return applied, CapsRefused(node=node, plan=plan, because=because) if because else None


def _applied(kind: str, wanted: Order, outcomes: Sequence[Outcome]) -> int | None:
    ours = [each for each in outcomes if each.kind == kind]
    if wanted.of(kind) is None or not ours or any(each.refused for each in ours):
        return None
    return max(each.value or 0 for each in ours)


def _applied_cards(wanted: Order, outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Those that are as ordered; a card that is given back may draw up to its own limit."""
    return {
        each.card: each.value or 0
        for each in outcomes
        if each.kind == "gpu" and not each.refused and wanted.of(each.kind, each.card) is not None
    }


def _without_actuators(wanted: Order, outcomes: Sequence[Outcome]) -> list[str]:
    found = {each.kind for each in outcomes}
    no_limit = NO_LIMIT | {"clocks": "the cards of this node have no clocks that can be locked"}
    kinds = [why for kind, why in no_limit.items() if wanted.has(kind) and kind not in found]
    cards = {each.card for each in outcomes}
    ordered = (card for card, cap in wanted.card_mw.items() if cap is not None)
    missing = [f"{card}: this node has no such card" for card in ordered if card not in cards]
    return [*kinds, *(missing if "gpu" in found else ())]
