"""Publishes what the agent has read, in order, and keeps readings while the broker is away."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from joulie_agent.backlog import Backlog, Kept, When
from joulie_bus.errors import BusError, OutOfBounds
from joulie_bus.events import InventoryRead, NodeReading, PodsUsed, TelemetrySampled, codec
from joulie_bus.events.bounds import MOST_LATE_MS
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.runtime import metrics

AT_ONCE = 10  # kept readings per second: thousands of agents return at the same time
AGAIN_S = 1.0
KEPT_USES = 60  # facts of an hour; what is dropped is unknown and never counts
LATE_MS = 1000  # a younger reading is not late


class Delivery:
    """Readings wait in the backlog; of the inventory only the newest counts."""

    def __init__(
        self, bus: Log, producer: Producer, backlog: Backlog, now: Callable[[], When] = When.now
    ) -> None:
        self._bus = bus
        self._producer = producer
        self._backlog = backlog
        self._now = now
        self._inventory: InventoryRead | None = None
        self._uses: deque[PodsUsed] = deque(maxlen=KEPT_USES)
        self._is_new = asyncio.Event()
        self._refused = Refusals("agent", "readings are kept and published later, as late ones")
        self._unfit = Refusals("agent-unfit", "it is left out, and the next ones are published")

    def put(self, reading: TelemetrySampled) -> None:
        if self._fits(reading):
            self._backlog.put(self._now(), reading)
            self._is_new.set()

    def put_inventory(self, found: InventoryRead) -> None:
        if self._fits(found):
            self._inventory = found
            self._is_new.set()

    def put_use(self, used: PodsUsed) -> None:
        if self._fits(used):
            self._uses.append(used)
            self._is_new.set()

    def _fits(self, fact: NodeReading) -> bool:
        """A fact that no event can hold would be tried again and again, and all others wait."""
        try:
            codec.encode(fact)
        except OutOfBounds as error:
            self._unfit.observe(error)
            return False
        self._unfit.ended()
        return True

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            await self.deliver()
            while self.waits:
                await asyncio.sleep(AGAIN_S)
                await self.deliver()

    @property
    def waits(self) -> bool:
        return bool(self._inventory or self._uses or len(self._backlog))

    async def deliver(self) -> None:
        """Publishes the next ones, as far as the broker takes them."""
        found = self._inventory
        if found is not None and await self._published([found]) and self._inventory is found:
            self._inventory = None
        await self._deliver_uses()
        oldest = self._backlog.oldest(AT_ONCE)
        now, upto = self._now(), self._backlog.removed + len(oldest)
        due = [late for kept in oldest if (late := _late(kept, now)) is not None]
        if not due or await self._published(due):
            # A full backlog may have dropped some of them meanwhile.
            self._backlog.drop(upto - self._backlog.removed)
        metrics.AGENT_KEPT.set(len(self._backlog))

    async def _deliver_uses(self) -> None:
        uses = list(self._uses)[:AT_ONCE]
        if uses and await self._published(uses):
            for each in uses:
                if self._uses and self._uses[0] is each:  # a full queue may have dropped it
                    self._uses.popleft()

    async def _published(self, facts: Sequence[NodeReading]) -> bool:
        try:
            await self._bus.publish([self._producer.stamp(fact) for fact in facts])
        except BusError as error:
            self._refused.observe(error)
            return False
        self._refused.ended()
        return True


def _late(kept: Kept, now: When) -> TelemetrySampled | None:
    """The reading with its age; None if it is too old for anyone."""
    age_ms = now.at_ms - kept.at_ms
    if age_ms > MOST_LATE_MS:
        return None
    return replace(kept.reading, late_ms=age_ms) if age_ms >= LATE_MS else kept.reading
