"""Reads a stream by direct gets: requests for batches, for which the broker keeps nothing.

For readers outside of the core. They may create no consumer, as a consumer stays, counts against
the limits of its stream, and delivers to any subject. At the end of the stream a reader asks again
after a pause.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import NamedTuple

import msgspec
from nats.aio.msg import Msg

from joulie_bus.errors import BrokerRefused, StreamGap
from joulie_bus.jetstream.connection import FORBIDDEN, Connection, Denial
from joulie_bus.jetstream.ordered import PULL, OrderedReader
from joulie_bus.jetstream.streams import nanoseconds
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

PAUSE_S = 0.25
_SUBJECT = "$JS.API.DIRECT.GET.{}"
GAP_PAUSE_S = 0.05
ANSWERS = 20  # by then each of three servers has answered, with 99.9 %
LOGGED_EVERY = 1000
log = get_logger("bus")
BATCH_S = 2.0  # for an answer that is not waited for longer
SILENCE_S = 4.0  # an answer that has not begun or continued by then is lost


Batch = list[tuple[Record, int]]  # each with the number of messages of the copy after it


class Found(NamedTuple):
    """What the broker adds to a message that it answers with."""

    subject: str
    sequence: int
    at: int
    pending: int  # messages of the stream after this one
    before: int  # the sequence of the message before it in the answer; 0: it is the first


def found_in(headers: bytes) -> Found | None:
    """None for a status. The broker appends its headers to those that the publisher chose."""
    named: dict[bytes, bytes] = {}
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b": ")
        named[name] = value
    if b"Nats-Sequence" not in named:
        return None
    return Found(
        # A subject may hold any bytes.
        named[b"Nats-Subject"].decode(errors="backslashreplace"),
        int(named[b"Nats-Sequence"]),
        nanoseconds(named[b"Nats-Time-Stamp"].decode()),
        int(named[b"Nats-Num-Pending"]),
        int(named[b"Nats-Last-Sequence"]),
    )


async def may_get(connection: Connection, stream: Stream) -> bool:
    """Whether this user may read so: users of a broker of an older version may not."""
    try:
        await connection.request(_SUBJECT.format(stream), b'{"seq":1}')
    except BrokerRefused as refusal:
        return refusal.code != FORBIDDEN
    return True


async def batch_from(connection: Connection, stream: Stream, sequence: int) -> Batch:
    """What the copy of one server holds from a sequence on, up to a message lost on the way.

    It needs no leader. The copy may be late or lack messages, so its end is not that of the stream.
    Raises BrokerRefused with code 403 if this user may not read so.
    """
    subject, inbox = _SUBJECT.format(stream), connection.new_inbox()
    found: Batch = []
    ended, denied = asyncio.Event(), list[Denial]()

    def on_answer(_: bytes, headers: bytes, data: bytes) -> None:
        answer = found_in(headers)
        if answer is None or answer.before != (found[-1][0].sequence if found else 0):
            ended.set()
        elif not ended.is_set():
            record = Record(stream, answer.sequence, answer.at, data, answer.subject)
            found.append((record, answer.pending))

    def on_denial(denial: Denial) -> None:
        if denial.concerns("publish", subject):
            denied.append(denial)
            ended.set()

    with connection.reporting_denials(on_denial):
        async with connection.subscribed(inbox, _unused, on_answer, with_headers=True):
            body = msgspec.json.encode({"seq": max(1, sequence), "batch": PULL})
            await connection.send(subject, body, inbox)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BATCH_S):
                    await ended.wait()
    if denied:
        raise BrokerRefused(subject, FORBIDDEN, "this user may not read it")
    return found


async def _unused(_: Msg) -> None: ...


class DirectReader(OrderedReader):
    """One request at a time."""

    _gaps = (0, 0)  # the next message, and how many answers lacked it
    _number = 0  # of the newest request
    _is_waiting = False  # for its answer
    _again_at = 0.0
    _last = 0  # the newest sequence of the answer
    _after = 0  # messages of the stream after it

    @contextlib.asynccontextmanager
    async def _subscribed(self) -> AsyncGenerator[None, None]:
        inbox = f"{self._inbox}.*"
        with self._connection.reporting_denials(self._on_denial):
            async with self._connection.subscribed(
                inbox, _unused, self._on_answer, with_headers=True
            ):
                yield

    def _on_denial(self, denial: Denial) -> None:
        subject = _SUBJECT.format(self.stream)
        if denial.concerns("publish", subject):
            self._fail(BrokerRefused(subject, FORBIDDEN, "this user may not read it"))

    @property
    def _wants_more(self) -> bool:
        return not self._is_waiting and len(self._buffer) <= PULL

    async def _begin(self) -> None:
        if self._gaps[0] == self.position + 1:
            await asyncio.sleep(GAP_PAUSE_S)
        self._broken = False
        self._life = self._connection.lives
        await self._ask()

    async def _ask_if_there_is_room(self) -> None:
        if self._wants_more and self._clock() >= self._again_at:
            await self._ask()

    async def _ask(self) -> None:
        """The message at the position is compared again, and those after it are new."""
        self._update_digest()
        self._number += 1
        self._last = 0
        self._is_waiting = True
        self._received_at = self._clock()
        request = {"seq": max(1, self.position), "batch": PULL}
        subject, body = _SUBJECT.format(self.stream), msgspec.json.encode(request)
        await self._connection.send(subject, body, f"{self._inbox}.{self._number}")

    @property
    def _is_silent(self) -> bool:
        return self._is_waiting and self._clock() - self._received_at > SILENCE_S

    def _on_gap(self, first: int) -> None:
        """The broker does not name the server that answered, and the next answer may be another's.

        Only if the leader lacks messages too, many answers without the next one show a gap of the
        stream.
        """
        wanted = self.position + 1
        before = self._gaps[1] if self._gaps[0] == wanted else 0
        self._gaps = (wanted, before + 1)
        leader_may_lack_it = self._leader.first > wanted or self._leader.missing > 0
        if not self._copies.are_several or (before >= ANSWERS and leader_may_lack_it):
            self._fail(StreamGap(self.stream, wanted, first))
        elif before % LOGGED_EVERY == 0:
            log.warning("gap_in_copy", stream=self.stream, wanted=wanted, found=first)

    def _on_answer(self, subject: bytes, headers: bytes, data: bytes) -> None:
        if not subject.endswith(b".%d" % self._number):
            return  # to a request that was given up
        self._received_at = self._clock()
        found = found_in(headers)
        if found is None:
            self._finish(headers)
        elif found.before != self._last:
            self._broken = True  # a message was lost on the way: read again from the position
        else:
            self._last, self._after = found.sequence, found.pending
            record = Record(self.stream, found.sequence, found.at, data, found.subject)
            self._accept(record, found.pending)

    def _finish(self, headers: bytes) -> None:
        """204 ends an answer, 404 is one without messages; any other status refuses it."""
        status = headers[9:12]
        self._is_waiting = False
        self._broken = self._broken or status not in (b"204", b"404")
        if status == b"404" and self._leader.first > self.position + 1:
            self._broken = True
            self._on_gap(self._leader.first)
        is_at_end = not self._last or not self._after
        self._again_at = self._clock() + PAUSE_S if is_at_end else 0.0
        self._wake.set()
