"""Reads one stream in order, from a position that the reader keeps.

Messages are pulled, never pushed, and not acknowledged: the position is stored with the rows
(docs/decisions/0003). Every sequence is checked. A gap is pulled again; if the stream itself has
the gap, reading ends with an error.

Each consumer starts at the position itself, to check that the message there is the one that was
read before. A stream that was restored from an older state and has grown since holds another one.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncGenerator

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from joulie_bus.errors import BrokerRefused, StreamGap, StreamReplaced, Unreachable
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.streams import state_of
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import rung
from joulie_bus.runtime.vital_tasks import VitalTask, living
from joulie_bus.streams.records import Record, digest_of
from joulie_bus.streams.subjects import Stream

PULL = 2500  # messages per request; two requests are kept in flight
EXPIRES_S = 2.0
SILENCE_S = EXPIRES_S + 2.0  # a request without messages or expiry by then is lost
RETRY_S = 0.2
log = get_logger("bus")


# Consumer, sequence in the stream, sequence of delivery, time stored, messages after it. A bare
# tuple, as there is one per message.
Ticket = tuple[bytes, int, int, int, int]


def parse_ticket(subject: bytes) -> Ticket:
    """Parses the acknowledgement subject of a message.

    It has 9 tokens in older servers, 11 or more in those that add domain and account.
    """
    parts = subject.split(b".")
    at = 5 if len(parts) == 9 else 7
    sequence, delivery = int(parts[at]), int(parts[at + 1])
    return parts[at - 2], sequence, delivery, int(parts[at + 2]), int(parts[at + 3])


class Reader:
    """`async with Reader.on(connection, stream, after=...)`, then `take` again and again."""

    def __init__(
        self, connection: Connection, stream: Stream, after: int, bell: asyncio.Event
    ) -> None:
        self.stream = stream
        self.created = ""
        self.digest = b""  # of the message at `position`; empty: not known yet
        self.position = after  # the last sequence that was taken into the buffer
        self.pending = 0  # messages in the stream after the newest received one
        self._connection = connection
        self._buffer: deque[Record] = deque()
        self._newest: Record | None = None  # of those put into the buffer
        self._bell = bell
        self._wake = asyncio.Event()
        self._consumer = b""
        self._deliveries = 0  # of this consumer, without gaps
        self._inbox = ""
        self._credit = 0  # messages requested that have neither arrived nor expired
        self._clock = asyncio.get_running_loop().time
        self._received_at = 0.0
        self._broken = False
        self._life = 0
        self._failure: Exception | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def on(
        cls,
        connection: Connection,
        stream: Stream,
        after: int,
        created: str = "",
        bell: asyncio.Event | None = None,
        digest: bytes = b"",
    ) -> AsyncGenerator["Reader", None]:
        """`created` identifies the stream that `after` belongs to, if known, and `digest` the
        message at `after`.

        `bell` is set when `take` has records or an error; readers may share one.
        """
        reader = cls(connection, stream, after, bell or asyncio.Event())
        reader.created, reader.digest = created, digest
        await reader._check_history()
        inbox = connection.new_inbox()
        reader._inbox = inbox
        async with connection.subscribed(f"{inbox}.*", reader._on_status, reader._on_pulled):
            await reader._open_consumer()
            async with living(VitalTask.PULL, reader._keep_pulling, stream):
                yield reader

    def __len__(self) -> int:
        return len(self._buffer)

    def take(self, limit: int) -> list[Record]:
        """At most `limit` received records; never waits."""
        if self._failure is not None:
            raise self._failure
        taken = [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]
        if self._wants_more:
            self._wake.set()
        return taken

    @property
    def _wants_more(self) -> bool:
        return self._credit <= PULL and len(self._buffer) <= PULL

    async def _check_history(self) -> None:
        state = await state_of(self._connection, self.stream)
        if self.created and self.created != state.created:
            raise StreamReplaced(
                self.stream, f"one created at {self.created}", f"one created at {state.created}"
            )
        self.created = state.created
        if state.last < self.position:
            raise StreamReplaced(
                self.stream,
                f"sequence {self.position}",
                f"sequence {state.last} (the stream lost messages that were read)",
            )
        if state.first > self.position + 1:
            raise StreamGap(self.stream, self.position + 1, state.first)
        if self._newest is not None:
            self.digest = digest_of(self._newest)
        if self.digest and state.first > self.position:
            # The message at the position was trimmed, so there is nothing else to compare.
            log.info("not_compared", stream=self.stream, position=self.position, why="trimmed")

    async def _open_consumer(self) -> None:
        name = f"joulie-{secrets.token_hex(6)}"
        self._consumer = name.encode()
        self._deliveries = 0
        self._credit = 0
        self._broken = False
        self._life = self._connection.lives
        self._received_at = self._clock()
        config = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, self.position),
            "ack_policy": "none",
            "max_waiting": 8,
            "mem_storage": True,
            "inactive_threshold": 30_000_000_000,
        }
        verb = f"CONSUMER.CREATE.{self.stream}.{name}"
        await self._connection.api(verb, {"stream_name": str(self.stream), "config": config})

    async def _keep_pulling(self) -> None:
        while self._failure is None:
            try:
                if self._broken or self._is_silent():
                    await self._check_history()
                    await self._open_consumer()
                await self._pull_if_there_is_room()
                await rung(self._wake, RETRY_S)
            except (Unreachable, BrokerRefused, NatsError, OSError) as error:
                log.warning("pull_failed", stream=self.stream, error=str(error))
                self._broken = True
                await asyncio.sleep(RETRY_S)
            except (StreamGap, StreamReplaced) as error:
                self._fail(error)
        await asyncio.Event().wait()  # `take` raises the failure

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error  # later failures follow from the first
        self._bell.set()

    def _is_silent(self) -> bool:
        if self._life != self._connection.lives:
            return True  # the consumer or the requests were lost with the connection
        waited = self._clock() - self._received_at
        return self._credit > 0 and waited > SILENCE_S

    async def _pull_if_there_is_room(self) -> None:
        if not self._wants_more:
            return
        if not self._credit:
            self._received_at = self._clock()
        request = {"batch": PULL, "expires": int(EXPIRES_S * 1e9)}
        consumer = self._consumer.decode()
        verb = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{consumer}"
        reply = f"{self._inbox}.{consumer}"
        self._credit += PULL
        await self._connection.send(verb, msgspec.json.encode(request), reply)

    def _on_pulled(self, subject: bytes, reply: bytes, data: bytes) -> None:
        consumer, sequence, delivery, at, pending = parse_ticket(reply)
        if consumer != self._consumer:
            return  # from a consumer that was replaced
        self._received_at = self._clock()
        self._credit -= 1
        if delivery != self._deliveries + 1:
            self._broken = True  # a message was lost on the way: read again from the position
            return
        self._deliveries = delivery
        if sequence <= self.position:
            self._compare(Record(self.stream, sequence, at, data))
            return
        if sequence != self.position + 1:  # no delivery was lost, so the gap is in the stream
            self._fail(StreamGap(self.stream, self.position + 1, sequence))
            return
        self.position = sequence
        self.pending = pending
        text = subject.decode(errors="backslashreplace")  # a subject may hold any bytes
        self._newest = Record(self.stream, sequence, at, data, text)
        self._buffer.append(self._newest)
        self._bell.set()
        if self._wants_more:
            self._wake.set()

    def _compare(self, found: Record) -> None:
        """Compares the message at the position with the one read before, if that is known."""
        if found.sequence != self.position:
            return
        self.digest = self.digest or digest_of(found)
        if digest_of(found) != self.digest:
            self._fail(StreamReplaced.at(self.stream, self.position))

    async def _on_status(self, message: Msg) -> None:
        """Messages come here too if the client does not dispatch them directly."""
        if message.reply:
            self._on_pulled(message.subject.encode(), message.reply.encode(), message.data)
            return
        if not message.subject.encode().endswith(self._consumer):
            return  # to a consumer that was replaced
        self._received_at = self._clock()
        headers = message.headers or {}
        status = headers.get("Status", "")
        if status in ("404", "408"):  # no messages, or the request expired
            self._credit = max(0, self._credit - int(headers.get("Nats-Pending-Messages", PULL)))
        elif status:  # 409 consumer deleted, 503 no responders
            self._broken = True
