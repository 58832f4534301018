"""Ships decisions to the log: spooled to disk before the reply, published soon after."""

import asyncio
import contextlib
from collections.abc import Sequence
from enum import StrEnum

from joulie_bus.errors import BusError
from joulie_bus.events import DecisionEntry, DecisionsDropped
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Message
from joulie_extender.decision_log.repeats import Repeats
from joulie_extender.decision_log.spool import Loss, Spool

SHIP_AT_ONCE = 500
RETRY_S = 1.0
GATHER_S = 0.1  # entries are published in batches while no reply waits for the broker
HEADROOM = 1024  # bytes that the broker adds to a message
log = get_logger("extender")


class Durability(StrEnum):
    """Where a decision must be stored before its reply is sent, beside the local disk."""

    ASYNC = "async"
    ACK = "ack"  # the broker has it, or the deadline is over
    STRICT = "strict"  # the broker has it, or there is no answer


class Shipper:
    """Spools decisions and publishes them in order."""

    def __init__(
        self, producer: Producer, spool: Spool, durability: Durability = Durability.ASYNC
    ) -> None:
        self._producer = producer
        self._spool = spool
        self._durability = durability
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._dropped = 0
        self._refused = Refusals("decisions", "kept in the spool, and published later")
        self._repeats = Repeats()
        self._has_work = asyncio.Event()
        self._has_work.set()  # ships what the last run left behind

    def record(self, entry: DecisionEntry) -> asyncio.Future[bool] | None:
        """Never stops scheduling: a decision that cannot be spooled is counted and leaves a
        sequence gap.

        With a durability above `async`, the result is whether the broker has stored it.
        """
        if self._repeats.is_repeat(entry):
            metrics.DECISIONS_UNCHANGED.inc()
            return None  # what the entry needs, it has
        message, waits = self.spool(entry), self._durability is not Durability.ASYNC
        if message is not None:
            self._repeats.written(entry, counts=not waits)
        if not waits:
            return None
        stored: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if message is None:
            stored.set_result(False)
        else:
            self._waiting[message.id] = stored
            stored.add_done_callback(lambda done: self._stored(done, message.id, entry))
        return stored

    def _stored(self, stored: asyncio.Future[bool], message: str, entry: DecisionEntry) -> None:
        # A caller that timed out is removed, so that an outage does not collect them.
        self._waiting.pop(message, None)
        if not stored.cancelled() and stored.result():
            self._repeats.stored(entry)

    def spool(self, entry: DecisionEntry) -> Message | None:
        """Records an entry for which no reply waits; None if it could not be spooled."""
        message = self._spooled(entry)
        self._has_work.set()
        return message

    @property
    def waiting(self) -> int:
        """The number of replies that wait for the broker."""
        return len(self._waiting)

    def _spooled(self, entry: DecisionEntry) -> Message | None:
        message = self._producer.stamp(entry, corr=entry.key)
        try:
            self._spool.append(message)
        except OSError as error:
            self._drop(error.strerror or str(error), entry.key)
            return None
        metrics.DECISIONS_SPOOLED.inc()
        if self._dropped:
            self._record_dropped()
        return message

    def _drop(self, why: str, about: str, records: int = 1) -> None:
        self._dropped += records
        self._why = why
        metrics.DECISIONS_DROPPED.inc(records)
        log.error("decision_dropped", error=why, about=about, records=records)

    def _record_dropped(self) -> None:
        """Records the number of dropped decisions; if that fails on a full disk, it is one more."""
        count, self._dropped = self._dropped, 0
        if self._spooled(DecisionsDropped(count=count, why=self._why)) is None:
            self._dropped += count

    async def ship(self, bus: Log) -> None:
        """Runs until cancelled. What the broker refuses stays in the spool and is tried again."""
        gather_s = GATHER_S if self._durability is Durability.ASYNC else 0.0
        while True:
            await wait_and_clear(self._has_work, gather_s=gather_s)
            while await self._ship_some(bus):
                pass

    async def _ship_some(self, bus: Log) -> bool:
        """Publishes a batch; returns whether more may be waiting."""
        try:
            messages, place, losses = self._spool.unshipped(SHIP_AT_ONCE)
            metrics.SPOOLED.set(len(messages))
            fitting = [each for each in messages if len(each.data) + HEADROOM <= bus.max_payload]
            await bus.publish(fitting)
        except (BusError, OSError) as error:
            self._refused.observe(error)
            await asyncio.sleep(RETRY_S)
            return True
        self._refused.ended()
        self._spool.shipped(place)
        self._shipped(fitting)
        if len(fitting) < len(messages):
            self._refuse(messages, bus.max_payload)
        self._lost(losses)
        metrics.SPOOLED.set(0)
        return len(messages) == SHIP_AT_ONCE

    def _lost(self, losses: Sequence[Loss]) -> None:
        """Records at once how many decisions are missing, and not with the next decision."""
        for loss in losses:
            self._drop(loss.why, "", loss.records)
        if self._dropped:
            self._record_dropped()
            if not self._dropped:
                self._has_work.set()

    def _refuse(self, messages: Sequence[Message], most: int) -> None:
        """Messages beyond the broker's limit are dropped, so that they do not block all others."""
        for message in messages:
            if len(message.data) + HEADROOM > most:
                self._drop(f"larger than the broker takes ({most} bytes)", message.id)
                self._end_wait(message, is_stored=False)

    def _shipped(self, messages: Sequence[Message]) -> None:
        metrics.DECISIONS_SHIPPED.inc(len(messages))
        for message in messages:
            self._end_wait(message, is_stored=True)

    def _end_wait(self, message: Message, *, is_stored: bool) -> None:
        stored = self._waiting.pop(message.id, None)
        if stored is not None and not stored.done():
            stored.set_result(is_stored)

    async def drained(self, patience_s: float) -> None:
        """On shutdown: waits a limited time for the spool to empty; the rest stays on disk."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not self._spool.is_empty:
                    await asyncio.sleep(0.02)
