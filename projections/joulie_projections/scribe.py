"""Writes the decision log: every answer in the order of its stream, signed heads, outcomes."""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import Engine

from joulie_bus import metrics
from joulie_bus.errors import BusError, OutOfBounds, Unwritable
from joulie_bus.log import Log
from joulie_bus.logging import get_logger
from joulie_bus.records import Message, Record
from joulie_bus.refusals import Refusals
from joulie_bus.subjects import Stream, Subjects
from joulie_bus.tasks import rung
from joulie_projections import heads, outcomes
from joulie_projections.calls import PASSING, DatabaseCalls
from joulie_projections.commit import Bound, Input
from joulie_projections.decisions import DecisionLog
from joulie_projections.entry import UNREADABLE, Entry, entry_of, stand_in, unreadable
from joulie_projections.halving import put_in_halves
from joulie_projections.heads import Head, Signer
from joulie_projections.sequence import read_to

HEAD_EVERY_S = 10.0
HEAD_EVERY_ROWS = 1000
LOOK_S = 0.25
GATHER_S = 0.25  # nobody waits for an entry
REFUSED_S = 2.0  # until outcomes that the broker refused are published again
DUE_AT_ONCE = 1000
log = get_logger("decisions")


class Lead(NamedTuple):
    """In whose name is written."""

    epoch: int
    incarnation: str


class Scribe:
    """The one writer of the log; every transaction of it is fenced by the projector's epoch."""

    def __init__(
        self, bus: Log, subjects: Subjects, engine: Engine, calls: DatabaseCalls, signer: Signer
    ) -> None:
        self._bus = bus
        self._subjects = subjects
        self._log = DecisionLog(engine)
        self._calls = calls
        self._signer = signer
        self._at = Input("", 0)
        self._signed_at = time.monotonic()
        self._unanchored: Head | None = None  # the newest head, until the broker has it
        self._heads_refused = Refusals("heads", "signed in the database, and published later")
        self._outcomes_refused = Refusals("outcomes", "kept in the database, and published later")
        self._mute: set[int] = set()  # positions of pods whose outcome cannot be published
        self.entries = 0

    async def open(self) -> bool:
        """False if the log ends before a head that was anchored elsewhere: a backup of it, then."""
        tip, self._at = await self._calls.until_done(self._log.open)
        self.entries = tip.pos
        stored = await self._bus.last(Stream.HEADS, self._subjects.heads)
        anchored = heads.decode(stored.data).pos if stored is not None else 0
        newest = await self._calls.until_done(self._log.newest_head)
        if newest is not None and newest.pos > anchored:
            self._unanchored = newest  # the last life could not publish it
        return anchored <= tip.pos

    async def write(self, lead: Lead, at_most: int) -> None:
        bell = asyncio.Event()
        at = self._at
        reading = self._bus.reading(Stream.DEC, at.sequence, at.created, bell, at.digest)
        async with reading as reader:
            while True:
                await rung(bell, gather_s=GATHER_S)
                while records := reader.take(at_most):
                    await self._append(lead, records, reader.created)

    async def _append(self, lead: Lead, records: Sequence[Record], created: str) -> None:
        async def put(some: Sequence[Record]) -> None:
            await self._put(lead, list(map(entry_of, some)), read_to(created, some[-1]))

        async def set_aside(record: Record, why: str) -> None:
            """As an entry that cannot be read; without its bytes if those are refused."""
            log.error("entry_refused", sequence=record.sequence, why=why)
            read = read_to(created, record)
            try:
                await self._put(lead, [unreadable(record)], read)
            except Unwritable:
                await self._put(lead, [unreadable(record._replace(data=stand_in(record)))], read)

        await put_in_halves(records, put, set_aside)

    async def _put(self, lead: Lead, entries: Sequence[Entry], read: Input) -> None:
        added = await self._calls.until_done(self._log.append, lead.epoch, entries, read)
        self.entries += added
        metrics.DECISIONS_WRITTEN.inc(added)
        unreadable = sum(entry.about.kind == UNREADABLE for entry in entries)
        metrics.REFUSED.labels(stream=Stream.DEC).inc(unreadable)

    # --- heads --------------------------------------------------------------------------------

    async def sign(self, lead: Lead) -> None:
        signed = self.entries
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                waited = time.monotonic() - self._signed_at
                metrics.HEAD_AGE_SECONDS.set(waited if self.entries > signed else 0)
                if waited >= HEAD_EVERY_S or self.entries - signed >= HEAD_EVERY_ROWS:
                    with contextlib.suppress(*PASSING):  # the next look tries again
                        await self._sign_head(lead)
                        signed = self.entries
        finally:
            # A clean end leaves nothing unsigned; the broker is still there, it is stopped last.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(2):
                    await self._sign_head(lead)

    async def _sign_head(self, lead: Lead) -> None:
        """Signed in the database, and anchored outside of it."""
        head = await self._calls.once(self._log.sign_head, self._signer, time.time_ns())
        self._signed_at = time.monotonic()
        self._unanchored = head or self._unanchored  # a newer head stands for all before it
        if self._unanchored is not None:
            await self._anchor(lead, self._unanchored)

    async def _anchor(self, lead: Lead, head: Head) -> None:
        """What the broker refuses is tried again with the next head, or as soon as one is due."""
        message_id = f"head:{lead.incarnation}:{head.pos}"
        message = Message(self._subjects.heads, message_id, heads.encode(head))
        try:
            await self._bus.publish([message])
        except BusError as error:
            self._heads_refused.saw(error)
        else:
            self._unanchored = None
            self._heads_refused.ended()

    # --- outcomes -----------------------------------------------------------------------------

    def _outcomes(self, ripe: Sequence[tuple[Bound, bytes | None]]) -> Iterator[Message]:
        """Without those of pods that no fact would name today: older code folded them."""
        for pod, said in ripe:
            try:
                yield outcomes.message_of(pod, said, self._subjects)
            except OutOfBounds as error:
                if pod.position not in self._mute:
                    self._mute.add(pod.position)
                    log.warning("outcome_left_out", position=pod.position, why=error.why)

    async def tell_outcomes(self, lead: Lead, grace_s: float) -> None:
        """Into the stream of the answers, and from there into the log like them.

        A pod whose answer is not known yet is waited for: its replica may still be shipping it.
        """
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                due = await self._calls.once(self._log.due, DUE_AT_ONCE)
                patience = time.time_ns() - int(grace_s * 1e9)
                ripe = [(pod, said) for pod, said in due if said is not None or pod.at < patience]
                if ripe:
                    # What is told comes back as an entry, and only then is no longer due.
                    await self._bus.publish(list(self._outcomes(ripe)))
                    self._outcomes_refused.ended()
                    await self._calls.once(self._log.settle, lead.epoch)
            except PASSING:
                continue  # the next look tries again
            except BusError as error:
                self._outcomes_refused.saw(error)  # they stay due
                await asyncio.sleep(REFUSED_S)
