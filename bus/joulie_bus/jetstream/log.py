"""The log on JetStream: one connection, its publisher, and readers on demand."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from joulie_bus.jetstream import batch, streams
from joulie_bus.jetstream.connection import Address, Connection
from joulie_bus.jetstream.direct import DirectReader, may_get
from joulie_bus.jetstream.hole_search import HoleSearch
from joulie_bus.jetstream.ordered import OrderedReader
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.jetstream.reader import ConsumerReader
from joulie_bus.log.protocol import Answer, Listener
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.records import (
    IncompleteCopy,
    Message,
    Record,
    Stored,
    StreamSize,
    StreamState,
    StreamTip,
)
from joulie_bus.streams.subjects import Stream

log = get_logger("bus")


class JetStreamLog:
    """`async with JetStreamLog.open(...)`; reconnects until the block ends."""

    def __init__(self, connection: Connection, publisher: Publisher) -> None:
        self._connection = connection
        self._publisher = publisher
        self._holes = HoleSearch(connection)
        self._is_outdated = False  # the broker, which refuses direct gets

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, address: Address, name: str, patience_s: float = 0.0
    ) -> AsyncGenerator["JetStreamLog", None]:
        connection = await Connection.open(address, name, patience_s)
        try:
            async with cls.over(connection) as opened:
                yield opened
        finally:
            await connection.close()

    @classmethod
    @contextlib.asynccontextmanager
    async def over(cls, connection: Connection) -> AsyncGenerator["JetStreamLog", None]:
        """On a connection that the caller closes."""
        async with Publisher.on(connection) as publisher:
            yield cls(connection, publisher)

    @property
    def max_payload(self) -> int:
        return self._connection.max_payload

    async def publish(self, messages: Sequence[Message]) -> None:
        await self._publisher.publish(messages)

    async def append(
        self, stream: Stream, messages: Sequence[Message], expected: Mapping[str, int]
    ) -> None:
        await batch.append(self._connection, stream, messages, expected)

    async def last(self, stream: Stream, subject: str) -> Stored | None:
        return await streams.last_on(self._connection, stream, subject)

    async def message(self, stream: Stream, sequence: int) -> Record | None:
        return await streams.message_at(self._connection, stream, sequence)

    async def state(self, stream: Stream) -> StreamState:
        return await streams.state_of(self._connection, stream)

    async def tip(self, stream: Stream) -> StreamTip:
        return await streams.tip_of(self._connection, stream)

    async def purge(self, stream: Stream, before: int) -> None:
        """Deletes the messages below a sequence."""
        await streams.purge(self._connection, stream, before)

    async def size(self, stream: Stream) -> StreamSize:
        return await streams.size_of(self._connection, stream)

    async def incomplete_copies(self) -> Sequence[IncompleteCopy]:
        return await self._holes.round()

    @contextlib.asynccontextmanager
    async def reading(
        self,
        stream: Stream,
        after: int,
        created: str = "",
        wakeup: asyncio.Event | None = None,
        digest: bytes = b"",
    ) -> AsyncGenerator[OrderedReader, None]:
        is_direct = self._connection.address.direct
        if is_direct:
            is_direct = await may_get(self._connection, stream)
            if not is_direct and not self._is_outdated:
                what = "its users have permissions of an older version: renew them"
                log.warning("broker_outdated", what=f"{what} (joulie grant all)")
            self._is_outdated = not is_direct
        on = DirectReader.on if is_direct else ConsumerReader.on
        async with on(self._connection, stream, after, created, wakeup, digest) as reader:
            yield reader

    def leave_server(self, why: str) -> None:
        self._connection.leave_server(why)

    async def send_live(self, subject: str, data: bytes) -> None:
        if self._connection.is_connected:
            with contextlib.suppress(NatsError, OSError):
                await self._connection.send(subject, data)

    @contextlib.asynccontextmanager
    async def listening(self, subject: str, listener: Listener) -> AsyncGenerator[None, None]:
        async with self._connection.listening(subject, listener):
            await self._connection.flush()  # after this no message is missed
            yield

    async def ask(self, subject: str, data: bytes, timeout_s: float) -> bytes:
        return (await self._connection.request(subject, data, timeout_s=timeout_s)).data

    @contextlib.asynccontextmanager
    async def answering(self, subject: str, answer: Answer) -> AsyncGenerator[None, None]:
        async def reply(message: Msg) -> None:
            if message.subject == subject and message.reply:  # not a stored message
                with contextlib.suppress(NatsError, OSError):
                    await self._connection.send(message.reply, await answer(message.data))

        async with self._connection.subscribed(subject, reply):
            yield
