"""Writes the decision log: answers in the order of their stream, signed heads, and outcomes."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import Engine

from joulie_bus.errors import BusError, KeyOfAnotherLog, OutOfBounds, Unwritable
from joulie_bus.events import StateSetBack
from joulie_bus.log.answered import until_answered
from joulie_bus.log.protocol import Log, Reader
from joulie_bus.log.refusals import Refusals
from joulie_bus.log.whole_stream import messages
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Message, Record, StreamState, digest_of
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_projections.chain import outcomes, set_back
from joulie_projections.chain.head import Head, encode
from joulie_projections.chain.signed import KeyStatement
from joulie_projections.decision_log import anchored, key_change
from joulie_projections.decision_log.anchored import Anchored
from joulie_projections.decision_log.facts_end import facts_end, move_manifests
from joulie_projections.decision_log.heads import Signer, lost_key, next_path
from joulie_projections.decision_log.log import DecisionLog, Signature
from joulie_projections.fold.commit import Checkpoint, FirstBinding, Input, Inputs
from joulie_projections.store.bisection import write_bisecting
from joulie_projections.store.retrying import TRANSIENT, DatabaseExecutor

HEAD_EVERY_S = 10.0
HEAD_EVERY_ROWS = 1000
LAST_HEAD_S = 4.0  # at a clean shutdown; less than a supervisor waits
POLL_S = 0.25
EXAMINE_S = 1.0  # between two looks for rows of others
AGAIN_S = 10.0  # a published outcome that is no entry by then is published again
GATHER_S = 0.25  # entries are written in batches: no request waits for one
REFUSED_S = 2.0  # delay before outcomes that the broker refused are published again
DUE_BATCH = 1000
log = get_logger("decisions")


class Leadership(NamedTuple):
    """The lease under which the process writes."""

    epoch: int
    incarnation: str


class Facts(NamedTuple):
    """How far the facts are committed."""

    position: int
    manifest: bytes
    read: Inputs


class DecisionWriter:
    """The only writer of the log; its transactions are fenced by the epoch of the projector."""

    def __init__(
        self,
        bus: Log,
        subjects: Subjects,
        engine: Engine,
        calls: DatabaseExecutor,
        signer: Signer,
        facts: Callable[[], Facts],
    ) -> None:
        """`facts` are those that a head signs."""
        self._bus = bus
        self._subjects = subjects
        self._engine = engine
        self._log = DecisionLog(engine)
        self._calls = calls
        self._signer = signer
        self._facts = facts
        self._known = Anchored(signer.public)  # heads in their stream
        self._heads_read = 0  # messages of that stream
        self._published = b""  # the newest head of this writer in that stream
        self._begins_behind = 0  # messages up to there were stored when this writer began
        self._examined_at = -EXAMINE_S
        self._foreign = 0  # rows of others that were counted
        self._problem = ""  # the one that was logged last
        self._signed_at = time.monotonic()
        self._unanchored: Head | None = None  # the newest head, until the broker has it
        self._heads_refused = Refusals("heads", "signed in the database, and published later")
        self._outcomes_refused = Refusals("outcomes", "kept in the database, and published later")
        self._outcomes_sent: dict[int, float] = {}  # when, by position, on the monotonic clock
        self._unpublishable: set[int] = set()  # positions of pods whose outcome cannot be published
        self._key_error_logged_at = -HEAD_EVERY_S  # when a failed change of keys was logged
        self._reader: Reader | None = None

    @property
    def entries(self) -> int:
        """The end of the log, which readers may show."""
        return self._log.end.pos

    @property
    def is_empty(self) -> bool:
        """Whether the database holds no entry."""
        return self._log.is_empty

    @property
    def unwritten(self) -> int:
        """Entries that the broker has stored and the database lacks."""
        return len(self._reader) + self._reader.pending if self._reader is not None else 0

    async def require_key(self) -> None:
        """Raises KeyOfAnotherLog if another key signed the log, or this one was handed over."""
        if self._signer.is_stale():  # another projector changed the key while this one stood by
            self._signer = self._signer.reload()
        signer = self._signer
        self._known = await anchored.newest(self._bus, signer.public)
        self._heads_read = self._known.last
        ring = self._known.ring
        if ring.newest.id != signer.key_id and not next_path(signer.path).exists():
            raise KeyOfAnotherLog(str(signer.path), signer.key_id, ring.newest.id)
        if self._known.newest is not None:
            return
        other = await self._calls.until_done(self._log.key_of_another, ring)
        if other and other != lost_key(signer.path):
            raise KeyOfAnotherLog(str(signer.path), signer.key_id, other)

    async def facts_end(self, held: Checkpoint) -> Checkpoint:
        """How far the facts were read. `require_key` comes before."""
        return await self._calls.until_done(facts_end, self._engine, self._known, held)

    async def move_manifests(self, epoch: int, position: int) -> bool:
        """Moves the manifests behind `position`, which other programs added; False if there are
        none."""
        order = (self._engine, epoch, position)
        found = await self._calls.until_done(move_manifests, *order)
        self._log.foreign += found
        self._report()
        return found > 0

    async def open(self, epoch: int) -> bool:
        """Begins behind the newest signed head; False if a signed head is of a later entry: the
        database is an older copy. `require_key` comes before."""
        lost = lost_key(self._signer.path)
        found = await self._calls.until_done(self._log.beginning, self._known, lost)
        if not self._known.is_whole and self._known.first > found.end.pos:
            self._known = await anchored.everything(self._bus, self._known.ring)
            found = await self._calls.until_done(self._log.beginning, self._known, lost)
        recorded, read = await self._calls.until_done(self._log.recorded)
        state = await until_answered(lambda: self._bus.state(Stream.DEC))
        here = await self._continued(found.end.read, read, state)
        is_lost = here.sequence > found.end.read.sequence  # the stream behind the head
        found = found._replace(end=found.end._replace(read=here))
        await self._calls.until_done(self._log.begin, epoch, found, self._known)
        if is_lost and recorded > found.end.pos:
            log.warning("not_derived", entries=recorded - found.end.pos, why="their stream is lost")
            await self._calls.until_done(self._log.accept_rows, epoch, recorded)
        self._begins_behind = state.last
        newest = self._known.newest
        if found.head is not None and (newest is None or newest.pos < found.head.pos):
            self._unanchored = found.head  # the last process could not publish it
        self._report()
        return not self._log.is_behind

    async def _continued(self, signed: Input, recorded: Input, state: StreamState) -> Input:
        """Where a stream is read on that an administrator put in the place of the signed one:
        `joulie migrate` recorded its identity. In any other case the head alone says it."""
        if signed.created in ("", state.created) or recorded.created != state.created:
            return signed
        if state.first <= signed.sequence <= state.last:
            [found, *_] = await messages(self._bus, Stream.DEC, signed.sequence - 1, 1)
            is_same = digest_of(found) == signed.digest
            return Input(state.created, signed.sequence, signed.digest) if is_same else signed
        is_behind = state.first > signed.sequence
        return Input(state.created, state.first - 1) if is_behind else signed

    async def write(self, leadership: Leadership, at_most: int) -> None:
        wakeup = asyncio.Event()
        at = self._log.end.read
        reading = self._bus.reading(Stream.DEC, at.sequence, at.created, wakeup, at.digest)
        async with reading as reader:
            self._reader = reader
            while True:
                while records := reader.take(at_most):
                    await self._append(leadership, records, reader.created)
                await self._examine(leadership)
                await wait_and_clear(wakeup, EXAMINE_S, gather_s=GATHER_S)

    async def _append(
        self, leadership: Leadership, records: Sequence[Record], created: str
    ) -> None:
        async def put(some: Sequence[Record]) -> None:
            await self._put(self._log.append, leadership, some, created)

        async def set_aside(record: Record, why: str) -> None:
            """Writes an unreadable entry; without the bytes of the message if they are refused."""
            log.error("entry_refused", sequence=record.sequence, why=why)
            order = (leadership, record, created)
            try:
                await self._put(self._log.set_aside, *order)
            except Unwritable:
                await self._put(self._log.set_aside_digest, *order)

        await write_bisecting(records, put, set_aside)

    async def _put(self, write: Callable[..., int], leadership: Leadership, *what: object) -> None:
        before = self.entries
        refused = await self._calls.until_done(write, leadership.epoch, *what)
        metrics.DECISIONS_WRITTEN.inc(self.entries - before)
        metrics.REFUSED.labels(stream=Stream.DEC).inc(refused)

    # --- what others wrote ----------------------------------------------------------------------

    async def _examine(self, leadership: Leadership) -> None:
        """Moves rows of others behind the end of the log."""
        now = time.monotonic()
        if self._log.end.read.sequence < self._begins_behind and not self._log.is_derived:
            return  # its messages may be still to come
        if now - self._examined_at >= EXAMINE_S:
            self._examined_at = now
            order = (leadership.epoch, self._signer.public)
            with contextlib.suppress(*TRANSIENT):
                await self._calls.once(self._log.move_underived, *order)
        self._report()

    def _report(self) -> None:
        """Counts what was put right, and names why nothing is signed."""
        if found := self._log.foreign - self._foreign:
            metrics.FOREIGN_ROWS.inc(found)
            log.error("foreign_rows", rows=found, what="moved to the table foreign_row")
            self._foreign = self._log.foreign
        metrics.LOG_FORKED.set(bool(self._log.problem))
        metrics.LOG_BEHIND_HEAD.set(self._log.is_behind)
        if self._log.problem != self._problem:
            self._problem = self._log.problem
            log.error("not_signed", why=self._problem)

    # --- heads --------------------------------------------------------------------------------

    async def sign(self, leadership: Leadership) -> None:
        signed = self.entries
        try:
            if self._unanchored is not None:  # at once: a log without its newest head looks cut
                await self._anchor(leadership, self._unanchored)
            while True:
                await asyncio.sleep(POLL_S)
                with contextlib.suppress(*TRANSIENT):
                    await self._calls.once(self._log.restore_lost_heads, leadership.epoch)
                waited = time.monotonic() - self._signed_at
                metrics.HEAD_AGE_SECONDS.set(waited if self.entries > signed else 0)
                if waited >= HEAD_EVERY_S or self.entries - signed >= HEAD_EVERY_ROWS:
                    await self._heed_others()
                    with contextlib.suppress(*TRANSIENT):  # retried at the next poll
                        if await self._sign_head(leadership):
                            signed = self.entries
        finally:
            # A clean shutdown signs the last entries; the broker is stopped last, so it is up.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(LAST_HEAD_S):
                    await self._sign_head(leadership)

    async def _heed_others(self) -> None:
        """Looks for heads that the leader before this one published late: while it waited for the
        broker, the database may have failed over to a standby that lacks them."""
        with contextlib.suppress(BusError, *TRANSIENT):  # looked for before the next head
            newest = await self._bus.last(Stream.HEADS, self._subjects.heads)
            if newest is None or newest.sequence == self._heads_read:
                return
            if (newest.sequence, newest.data) != (self._heads_read + 1, self._published):
                found = await anchored.since(self._bus, self._known.ring, self._heads_read)
                if found.heads:
                    await self._calls.once(self._log.heed, found)
            self._heads_read = newest.sequence

    async def _sign_head(self, leadership: Leadership) -> bool:
        """Signs a head in the database and anchors it; False if nothing may be signed."""
        if not await self._change_keys(leadership):
            return False
        beside = Signature(leadership.incarnation, *self._facts(), time.time_ns())
        head = await self._calls.once(self._log.sign, leadership.epoch, self._signer, beside)
        self._signed_at = time.monotonic()
        self._unanchored = head or self._unanchored  # the newest head covers all before it
        if self._unanchored is not None:
            await self._anchor(leadership, self._unanchored)
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
            self._unanchored, self._published = None, message.data
            self._heads_refused.ended()

    async def _change_keys(self, leadership: Leadership) -> bool:
        """Makes the changes that `joulie keys` requested; False if the key is not in force."""
        try:
            if self._signer.is_stale():  # another projector changed the key meanwhile
                self._signer = self._signer.reload()
            while key_change.is_requested(self._signer):
                if self._log.is_behind:
                    return True  # an older copy of the database: wait until it has caught up
                end = await self._calls.once(self._log.signed_to, leadership.epoch)
                change = key_change.prepare(self._signer, *end, time.time_ns())
                await self._bus.publish([_anchoring(self._subjects, change.statement)])
                self._signer = change.complete()
                log.warning("key_changed", signs=self._signer.key_id, after=end.pos)
                metrics.KEY_CHANGES.inc()
            metrics.KEY_CHANGE_REFUSED.set(0)
        except (*key_change.FAILURES, msgspec.DecodeError) as error:
            metrics.KEY_CHANGE_REFUSED.set(1)
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

    def _ripe(
        self, due: Sequence[tuple[FirstBinding, bytes | None]], overdue: int
    ) -> list[tuple[FirstBinding, bytes | None]]:
        """Those with an answer, or whose answer did not come, and that are not on their way."""
        since = time.monotonic() - AGAIN_S
        sent = {at: when for at, when in self._outcomes_sent.items() if when > since}
        self._outcomes_sent = sent
        return [
            (pod, answer)
            for pod, answer in due
            if pod.position not in sent and (answer is not None or pod.at < overdue)
        ]

    async def publish_outcomes(self, leadership: Leadership, grace_s: float) -> None:
        """Publishes outcomes to the stream of decisions, from where they are written to the log.

        A pod without an answer waits for `grace_s`: its replica may still be shipping the answer.
        """
        while True:
            await asyncio.sleep(POLL_S)
            if not self._log.is_derived:
                continue  # the last answers may be still to come
            try:
                due = await self._calls.once(self._log.due, DUE_BATCH)
                if ripe := self._ripe(due, time.time_ns() - int(grace_s * 1e9)):
                    # The pod is due until the published outcome is an entry of the log.
                    await self._bus.publish(list(self._outcomes(ripe)))
                    self._outcomes_refused.ended()
                    now = time.monotonic()
                    self._outcomes_sent |= dict.fromkeys((pod.position for pod, _ in ripe), now)
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
