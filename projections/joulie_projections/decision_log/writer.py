"""Writes the decision log: answers in the order of their stream, signed heads, and outcomes."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import Engine

from joulie_bus.errors import BusError, KeyOfAnotherLog, OutOfBounds, Unwritable
from joulie_bus.events import StateSetBack
from joulie_bus.log.protocol import Log, Reader
from joulie_bus.log.refusals import Refusals
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Message, Record
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_projections.chain import outcomes, set_back
from joulie_projections.chain.entry import digest_entry, unreadable_entry
from joulie_projections.chain.signed import Head, KeyStatement, encode
from joulie_projections.chain.unreadable import Taken, UnreadableQuota
from joulie_projections.decision_log import anchored, key_change
from joulie_projections.decision_log.heads import Signer, lost_key
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.fold.commit import FirstBinding, Input
from joulie_projections.fold.sequence import input_after
from joulie_projections.store.bisection import write_bisecting
from joulie_projections.store.retrying import TRANSIENT, DatabaseExecutor

HEAD_EVERY_S = 10.0
HEAD_EVERY_ROWS = 1000
LAST_HEAD_S = 4.0  # at a clean shutdown; less than a supervisor waits
POLL_S = 0.25
GATHER_S = 0.25  # entries are written in batches: no request waits for one
REFUSED_S = 2.0  # delay before outcomes that the broker refused are published again
DUE_BATCH = 1000
LOST_BATCH = 500
log = get_logger("decisions")


class Leadership(NamedTuple):
    """The lease under which the process writes."""

    epoch: int
    incarnation: str


class DecisionWriter:
    """The only writer of the log; its transactions are fenced by the epoch of the projector."""

    def __init__(
        self, bus: Log, subjects: Subjects, engine: Engine, calls: DatabaseExecutor, signer: Signer
    ) -> None:
        self._bus = bus
        self._subjects = subjects
        self._log = DecisionLog(engine)
        self._calls = calls
        self._signer = signer
        self._at = Input("", 0)
        self._quota = UnreadableQuota()
        self._anchored = 0  # entry of the newest head in the stream of heads
        self._lost: list[Head] = []  # anchored heads that an older copy of the database lacks
        self._signed_at = time.monotonic()
        self._unanchored: Head | None = None  # the newest head, until the broker has it
        self._heads_refused = Refusals("heads", "signed in the database, and published later")
        self._outcomes_refused = Refusals("outcomes", "kept in the database, and published later")
        self._unpublishable: set[int] = set()  # positions of pods whose outcome cannot be published
        self._key_error_logged_at = -HEAD_EVERY_S  # when a failed change of keys was logged
        self.entries = 0
        self._reader: Reader | None = None

    @property
    def unwritten(self) -> int:
        """Entries that the broker has stored and the database lacks."""
        return len(self._reader) + self._reader.pending if self._reader is not None else 0

    async def require_key(self) -> None:
        """Raises KeyOfAnotherLog if the newest head was signed with a key unknown here."""
        newest = await self._calls.until_done(self._log.newest_head)
        if self._signer.is_stale():  # another projector changed the key while this one stood by
            self._signer = self._signer.reload()
        signer = self._signer
        if newest is None or newest.key_id == lost_key(signer.path):
            return
        if signer.public.key(newest.key_id) is None:
            raise KeyOfAnotherLog(str(signer.path), signer.key_id, newest.key_id)

    async def open(self, epoch: int) -> bool:
        """Returns False if the log ends before an anchored head: the database is an older copy."""
        tip, self._at = await self._calls.until_done(self._log.open)
        self._quota = UnreadableQuota(await self._calls.until_done(self._log.unreadable_quota))
        self.entries = tip.pos
        signed_to = await self._calls.until_done(self._log.signed_to, epoch)
        self._anchored = await anchored.newest(self._bus, self._subjects, self._signer)
        if self._anchored > signed_to.pos:
            self._lost = await anchored.behind(self._bus, signed_to.pos, self._signer)
        newest = await self._calls.until_done(self._log.newest_head)
        if newest is not None and newest.pos > self._anchored:
            self._unanchored = newest  # the last process could not publish it
        return self._anchored <= tip.pos

    async def write(self, leadership: Leadership, at_most: int) -> None:
        wakeup = asyncio.Event()
        at = self._at
        reading = self._bus.reading(Stream.DEC, at.sequence, at.created, wakeup, at.digest)
        async with reading as reader:
            self._reader = reader
            while True:
                await wait_and_clear(wakeup, gather_s=GATHER_S)
                while records := reader.take(at_most):
                    await self._append(leadership, records, reader.created)

    async def _append(
        self, leadership: Leadership, records: Sequence[Record], created: str
    ) -> None:
        async def put(some: Sequence[Record]) -> None:
            taken, quota = self._quota.take(some)
            await self._put(leadership, taken, input_after(created, some[-1]), quota)

        async def set_aside(record: Record, why: str) -> None:
            """Writes an unreadable entry; without the bytes of the message if they are refused."""
            log.error("entry_refused", sequence=record.sequence, why=why)
            read = input_after(created, record)
            try:
                await self._put(leadership, Taken([unreadable_entry(record)], 1), read)
            except Unwritable:
                await self._put(leadership, Taken([digest_entry(record)], 1), read)

        await write_bisecting(records, put, set_aside)

    async def _put(
        self,
        leadership: Leadership,
        taken: Taken,
        read: Input,
        quota: UnreadableQuota | None = None,
    ) -> None:
        quota = quota or self._quota
        saved = None if quota is self._quota else quota.saved
        after, epoch = self._at.sequence, leadership.epoch
        end = await self._calls.until_done(
            self._log.append, epoch, taken.entries, after, read, saved
        )
        self._at, self._quota = read, quota
        metrics.DECISIONS_WRITTEN.inc(end - self.entries)
        self.entries = end
        metrics.REFUSED.labels(stream=Stream.DEC).inc(taken.refused)

    # --- heads --------------------------------------------------------------------------------

    async def sign(self, leadership: Leadership) -> None:
        signed = self.entries
        try:
            if self._unanchored is not None:  # at once: a log without its newest head looks cut
                await self._anchor(leadership, self._unanchored)
            while True:
                await asyncio.sleep(POLL_S)
                with contextlib.suppress(*TRANSIENT):
                    await self._restore_lost(leadership)
                waited = time.monotonic() - self._signed_at
                metrics.HEAD_AGE_SECONDS.set(waited if self.entries > signed else 0)
                if waited >= HEAD_EVERY_S or self.entries - signed >= HEAD_EVERY_ROWS:
                    with contextlib.suppress(*TRANSIENT):  # retried at the next poll
                        if await self._sign_head(leadership):
                            signed = self.entries
        finally:
            # A clean shutdown signs the last entries; the broker is stopped last, so it is up.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(LAST_HEAD_S):
                    await self._sign_head(leadership)

    async def _sign_head(self, leadership: Leadership) -> bool:
        """Signs a head in the database and anchors it; False if nothing may be signed."""
        if not await self._change_keys(leadership):
            return False
        order = (leadership.epoch, self._signer, time.time_ns(), self.entries)
        head = await self._calls.once(self._log.sign_head, *order)
        self._signed_at = time.monotonic()
        self._unanchored = head or self._unanchored  # the newest head covers all before it
        if self._unanchored is not None:
            await self._anchor(leadership, self._unanchored)
        await self._calls.once(self._log.sign_checkpoint, leadership.epoch, self._signer)
        return True

    async def _anchor(self, leadership: Leadership, head: Head) -> None:
        """Publishes the head. If the broker refuses it, the next due head is published instead."""
        message_id = f"head:{leadership.incarnation}:{head.pos}"
        message = Message(self._subjects.heads, message_id, encode(head))
        try:
            await self._bus.publish([message])
        except BusError as error:
            self._heads_refused.observe(error)
        else:
            self._unanchored, self._anchored = None, head.pos
            self._heads_refused.ended()

    async def _restore_lost(self, leadership: Leadership) -> None:
        """Restores the lost heads up to the current end of the log."""
        entries = self.entries
        due = [head for head in self._lost if head.pos <= entries]
        for start in range(0, len(due), LOST_BATCH):
            some = due[start : start + LOST_BATCH]
            await self._calls.once(self._log.restore_lost_heads, leadership.epoch, some)
        self._lost = [head for head in self._lost if head.pos > entries]

    async def _change_keys(self, leadership: Leadership) -> bool:
        """Makes the changes that `joulie keys` requested; False if the key is not in force."""
        try:
            if self._signer.is_stale():  # another projector changed the key meanwhile
                self._signer = self._signer.reload()
            while key_change.is_requested(self._signer):
                end = await self._calls.once(self._log.signed_to, leadership.epoch)
                if end.pos < self._anchored:
                    return True  # an older copy of the database: wait until it has caught up
                change = key_change.prepare(self._signer, *end, time.time_ns())
                await self._bus.publish([_anchoring(self._subjects, change.statement)])
                self._signer = change.complete()
                log.info("key_changed", signs=self._signer.key_id, after=end.pos)
        except (*key_change.FAILURES, msgspec.DecodeError) as error:
            if time.monotonic() - self._key_error_logged_at >= HEAD_EVERY_S:
                log.error("key_change_failed", why=str(error), signs=self._signer.key_id)
                self._key_error_logged_at = time.monotonic()
            return key_change.is_in_force(self._signer)
        return True

    # --- a database that was set back -------------------------------------------------------------

    async def record_set_back(self, found: StateSetBack) -> None:
        """Waits until the broker has it: decisions on the lost state cannot be told apart later."""
        message = set_back.message_of(found, time.time_ns(), self._subjects)
        refused = Refusals("set_back", "nothing is folded before it is stored")
        while True:
            try:
                await self._bus.publish([message])
            except BusError as error:
                refused.observe(error)
                await asyncio.sleep(REFUSED_S)
            else:
                refused.ended()
                return

    # --- outcomes -----------------------------------------------------------------------------

    def _outcomes(self, ripe: Sequence[tuple[FirstBinding, bytes | None]]) -> Iterator[Message]:
        """Messages of the outcomes, without pods that exceed the bounds of events."""
        for pod, answer in ripe:
            try:
                yield outcomes.message_of(pod, answer, self._subjects)
            except OutOfBounds as error:
                if pod.position not in self._unpublishable:
                    self._unpublishable.add(pod.position)
                    log.warning("outcome_left_out", position=pod.position, why=error.why)

    async def publish_outcomes(self, leadership: Leadership, grace_s: float) -> None:
        """Publishes outcomes to the stream of decisions, from where they are written to the log.

        A pod without an answer waits for `grace_s`: its replica may still be shipping the answer.
        """
        while True:
            await asyncio.sleep(POLL_S)
            try:
                due = await self._calls.once(self._log.due, DUE_BATCH)
                overdue = time.time_ns() - int(grace_s * 1e9)
                ripe = [
                    (pod, answer) for pod, answer in due if answer is not None or pod.at < overdue
                ]
                if ripe:
                    # The pod is due until the published outcome is an entry of the log.
                    await self._bus.publish(list(self._outcomes(ripe)))
                    self._outcomes_refused.ended()
                    await self._calls.once(self._log.drop_settled, leadership.epoch)
            except TRANSIENT:
                continue  # retried at the next poll
            except BusError as error:
                self._outcomes_refused.observe(error)  # they stay due
                await asyncio.sleep(REFUSED_S)


def _anchoring(subjects: Subjects, statement: KeyStatement) -> Message:
    """The message id derives from the signed text: a resend after a crash is the same message."""
    message_id = f"key:{hashlib.sha256(statement.text).hexdigest()[:32]}"
    return Message(subjects.heads, message_id, encode(statement))
