"""Ships decisions to the log: spooled to disk before the reply, published soon after."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec.structs import replace

from joulie_bus.errors import BusError, Undecodable
from joulie_bus.events import DecisionEntry, DecisionsDropped, codec
from joulie_bus.log.producer import Producer
from joulie_bus.log.protocol import Log
from joulie_bus.log.refusals import Refusals
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.runtime.vital_tasks import VitalTask, living
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Subjects
from joulie_extender.decision_log.kept_hashes import Kept, KeptHashes
from joulie_extender.decision_log.log_check import LogCheck
from joulie_extender.decision_log.promised_spool import PromisedSpool
from joulie_extender.decision_log.repeats import Repeats
from joulie_extender.decision_log.spool import Loss, Spool, Unshipped
from joulie_projections.store.database import Place

SHIP_AT_ONCE = 500
RETRY_S = 1.0
SIGN_S = 1.0  # after the first message without a promise
GATHER_S = 0.1  # entries are published in batches while no reply waits for the broker
NS = 10**9
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
        self,
        producer: Producer,
        spool: Spool,
        durability: Durability = Durability.ASYNC,
        kept: KeptHashes | None = None,
        check: LogCheck | None = None,
    ) -> None:
        """Without `kept` and `check` it is not found out whether the log has what was shipped."""
        self._spool = spool
        self._kept, self._check = kept, check
        self._promised = PromisedSpool(
            producer, spool, kept.unsigned(spool.left_over()) if kept else ()
        )
        self._durability = durability
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._dropped = self._dropped_promised = 0
        self._refused = Refusals("decisions", "kept in the spool, and published later")
        self._repeats = Repeats()
        self._oldest_at: int | None = None  # of the messages that wait, at the last look
        with contextlib.suppress(OSError):
            self._look_at(spool.unshipped(1))
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
        if not self._spool.waiting:
            self._oldest_at = time.time_ns()
        try:
            message = self._promised.append(entry)
        except OSError as error:
            self._drop(error.strerror or str(error), entry.key)
            return None
        metrics.DECISIONS_SPOOLED.inc()
        if self._dropped:
            self._record_dropped()
        return message

    def _drop(self, why: str, about: str, records: int = 1, promised: int = 0) -> None:
        """`promised` of the records were on the disk before."""
        self._dropped += records
        self._dropped_promised += promised
        self._why = why
        metrics.DECISIONS_DROPPED.inc(records)
        log.error("decision_dropped", error=why, about=about, records=records)

    def _record_dropped(self) -> None:
        """Records the number of dropped decisions; if that fails on a full disk, it is one more."""
        count, promised = self._dropped, self._dropped_promised
        self._dropped = self._dropped_promised = 0
        entry = DecisionsDropped(count=count, why=self._why, promised=promised)
        if self._spooled(entry) is None:
            self._dropped += count
            self._dropped_promised += promised

    async def ship(self, bus: Log) -> None:
        """Runs until cancelled. What the broker refuses stays in the spool and is tried again."""
        gather_s = GATHER_S if self._durability is Durability.ASYNC else 0.0
        while True:
            timeout_s = SIGN_S if self._promised.is_unsigned else None
            await wait_and_clear(self._has_work, timeout_s, gather_s=gather_s)
            self._sign()
            while await self._ship_some(bus):
                pass

    def _sign(self, *, at_once: bool = False) -> None:
        """On a full disk the next attempt signs."""
        with contextlib.suppress(OSError):
            self._promised.sign(at_once=at_once)

    async def _ship_some(self, bus: Log) -> bool:
        """Publishes a batch; returns whether more may be waiting."""
        try:
            found = self._spool.unshipped(SHIP_AT_ONCE)
            messages = found.messages
            self._look_at(found)
            fitting = [each for each in messages if len(each.data) + HEADROOM <= bus.max_payload]
            await bus.publish(fitting)
        except (BusError, OSError) as error:
            self._refused.observe(error)
            await asyncio.sleep(RETRY_S)
            return True
        self._refused.ended()
        hashes = self._promised.kept(messages)
        self._keep(hashes, messages, bus.max_payload)
        self._spool.shipped(found)
        self._shipped(fitting)
        promises = sum(bool(kept.signing) for kept in hashes)
        metrics.DECISIONS_SHIPPED.inc(len(fitting) - promises)
        if len(fitting) < len(messages):
            self._refuse(messages, bus.max_payload)
        self._lost(found.losses)
        return len(messages) == SHIP_AT_ONCE

    def _keep(self, hashes: Sequence[Kept], messages: Sequence[Message], most: int) -> None:
        """The hashes stay on the disk when the messages leave it."""
        if self._kept is None or not hashes:
            return
        marked = [
            replace(kept, lost=len(message.data) + HEADROOM > most)
            for kept, message in zip(hashes, messages, strict=True)
        ]
        try:
            self._kept.add(time.time_ns(), marked)
        except OSError as error:
            metrics.HASHES_LOST.inc(len(hashes))
            log.error("hashes_lost", messages=len(hashes), why=error.strerror or str(error))

    def _look_at(self, found: Unshipped) -> None:
        self._oldest_at = _made_at(found.messages[0]) if found.messages else None

    def _lost(self, losses: Sequence[Loss]) -> None:
        """Records at once how many decisions are missing, and not with the next decision."""
        for loss in losses:
            self._drop(loss.why, "", loss.records, promised=loss.records)
        if self._dropped:
            self._record_dropped()
            if not self._dropped:
                self._has_work.set()

    def _refuse(self, messages: Sequence[Message], most: int) -> None:
        """Messages beyond the broker's limit are dropped, so that they do not block all others."""
        for message in messages:
            if len(message.data) + HEADROOM > most:
                why = f"larger than the broker takes ({most} bytes)"
                self._drop(why, message.id, promised=1)
                self._end_wait(message, is_stored=False)

    def _shipped(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._end_wait(message, is_stored=True)

    def _end_wait(self, message: Message, *, is_stored: bool) -> None:
        stored = self._waiting.pop(message.id, None)
        if stored is not None and not stored.done():
            stored.set_result(is_stored)

    @contextlib.asynccontextmanager
    async def working(self, bus: Log) -> AsyncGenerator[None, None]:
        """Ships what is spooled within the block, and looks whether the log has it."""
        async with contextlib.AsyncExitStack() as tasks:
            await tasks.enter_async_context(living(VitalTask.SHIP, lambda: self.ship(bus)))
            if (check := self._check) is not None:
                tasks.enter_context(metrics.ANSWERS_MISSING.computed_by(check.count))
                await tasks.enter_async_context(living(VitalTask.PROMISES, lambda: check.run(bus)))
            yield

    async def drained(self, patience_s: float) -> None:
        """On shutdown: signs the end, and waits a limited time for the spool to empty; the rest
        stays on disk."""
        self._sign(at_once=True)
        self._has_work.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not self._spool.is_empty:
                    await asyncio.sleep(0.02)
        if waiting := self._spool.waiting:
            what = "they wait in the spool, and are published after the next start"
            log.warning("spool_not_empty", entries=waiting, what=what)

    @property
    def spooled(self) -> int:
        """The number of entries on the disk that the broker does not have."""
        return self._spool.waiting

    @property
    def oldest_s(self) -> float | None:
        """The age of the oldest decision that waits in the spool; 0 without one."""
        if not self._spool.waiting:
            return 0.0
        at = self._oldest_at
        return None if at is None else max(0.0, (time.time_ns() - at) / NS)


@contextlib.contextmanager
def shipping(
    producer: Producer,
    directory: Path,
    durability: Durability = Durability.ASYNC,
    log_of: tuple[Place, Subjects] | None = None,
) -> Generator[Shipper, None, None]:
    """Within the block metrics have what waits in the spool, also while nothing is shipped.

    `log_of` is the database of the log and its cluster: where to look for what was shipped.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (
        contextlib.closing(Spool(directory)) as spool,
        contextlib.closing(KeptHashes(directory)) as kept,
    ):
        check = LogCheck(kept, directory, *log_of) if log_of is not None else None
        shipper = Shipper(producer, spool, durability, kept, check)
        with (
            metrics.SPOOLED.computed_by(lambda: shipper.spooled),
            metrics.SPOOL_AGE_SECONDS.computed_by(lambda: shipper.oldest_s),
            metrics.HASHES_WAITING.computed_by(lambda: kept.waiting),
        ):
            try:
                yield shipper
            finally:
                spool.delete_shipped()


def _made_at(message: Message) -> int | None:
    try:
        return codec.open_envelope(message.data, "the spool").ts
    except Undecodable:
        return None
