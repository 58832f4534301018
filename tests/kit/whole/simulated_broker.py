"""The broker at the other end of links: messages are late, or get lost in one direction or both."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from simulated_copies import Copies, CopiesConnection
from virtual_time import Process, require_alive

from bus_kit.memory_broker import MemoryBroker, MemoryLog, MemoryReader
from joulie_bus.errors import BrokerRefused, BusError, Unreachable
from joulie_bus.jetstream.hole_search import HoleSearch
from joulie_bus.jetstream.reader import ConsumerReader
from joulie_bus.log.protocol import Listener, Reader
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

T = TypeVar("T")
REQUEST_S = 5.0  # API_TIMEOUT_S of a connection
RESEND_S = 2.0  # ACK_DEADLINE_S of the publisher
FIFO_S = 1e-7  # between two live messages on one connection
URL = "nats://broker"


class Link:
    """Between a component and the broker; it outlives the processes of the component."""

    def __init__(self, rng: random.Random) -> None:
        self.sends = self.receives = True
        self.slow_s = 0.0
        self.lost_share = 0.0  # of acknowledgements and replies
        self.heard: list[Callable[[], None]] = []  # called when the link works again
        self.rng = self._rng = rng
        self._base_s = rng.uniform(0.0001, 0.002)

    @property
    def works(self) -> bool:
        return self.sends and self.receives and not self.lost_share

    def delay_s(self) -> float:
        return self._base_s + self._rng.expovariate(1 / (self._base_s + self.slow_s))

    def loses(self) -> bool:
        return not self.receives or self._rng.random() < self.lost_share

    def heal(self) -> None:
        self.sends = self.receives = True
        self.slow_s = self.lost_share = 0.0
        self.came_back()

    def came_back(self) -> None:
        for listener in list(self.heard):
            listener()


class BrokerServer:
    """The broker and its listeners. Without a quorum it answers, and stores nothing."""

    def __init__(self, broker: MemoryBroker, clock: Callable[[], float]) -> None:
        self.broker = broker
        self.is_up = True
        self.lost_quorum_at: float | None = None
        self.clock = clock
        self.copies: Copies | None = None  # of streams, in runs that damage one
        self._listeners: list[tuple[str, LinkedLog, Listener]] = []

    @property
    def stores(self) -> bool:
        return self.is_up and self.lost_quorum_at is None

    def join(self, subject: str, log: "LinkedLog", listener: Listener) -> None:
        self._listeners.append((subject, log, listener))

    def leave(self, listener: Listener) -> None:
        self._listeners = [each for each in self._listeners if each[2] is not listener]

    def send(self, subject: str, data: bytes) -> None:
        for known, log, listener in self._listeners:
            if known == subject and self.is_up:
                log.deliver(listener, data)

    def heal(self) -> None:
        self.is_up, self.lost_quorum_at = True, None
        for stream in Stream:
            self.broker.stream(stream).limit = None
        if self.copies is not None:
            self.copies.heal()


class LinkedReader:
    """What of a stream has arrived over the link."""

    def __init__(
        self, log: "LinkedLog", stream: Stream, inner: MemoryReader, wakeup: asyncio.Event
    ) -> None:
        self.created = inner.created
        self._log = log
        self._stream = stream
        self._inner = inner
        self._wakeup = wakeup
        self._sent_to = self._arrived_to = 0

    @property
    def pending(self) -> int:
        return 0

    def __len__(self) -> int:
        here = self._log.server.broker.stream(self._stream)
        beyond = max(0, here.last - self._arrived_to)
        return max(0, len(self._inner) - beyond)

    def take(self, limit: int) -> list[Record]:
        require_alive()
        if self._log.is_connected:
            self._inner.take(0)  # raises what a consumer would report
        count = min(limit, len(self))
        return self._inner.take(count) if count else []

    def sent(self) -> None:
        """The broker may hold more than before; it arrives later."""
        last = self._log.server.broker.stream(self._stream).last
        if self._log.is_connected and last != self._sent_to:
            self._sent_to = last
            self._log.later(self._arrive, last)

    def _arrive(self, last: int) -> None:
        if self._log.is_connected:
            self._arrived_to = last
            self._wakeup.set()
        else:
            self._sent_to = -1  # sent again once the link works


class _Bell(asyncio.Event):
    """In place of the reader's own: passes on that the broker stored something."""

    def __init__(self, passed_on: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.passed_on = passed_on

    def set(self) -> None:
        self.passed_on()


class LinkedLog:
    """The log as one process reaches it."""

    max_payload = MemoryLog.max_payload

    def __init__(self, server: BrokerServer, link: Link, process: Process) -> None:
        self.server = server
        self._link = link
        self._process = process
        self._inner = MemoryLog(server.broker)
        self._last_delivery = 0.0
        self._connection: Any = None
        self._holes: HoleSearch | None = None
        if server.copies is not None:
            self._connection = CopiesConnection(self, server.copies, link.rng)
            self._holes = HoleSearch(self._connection)

    @property
    def is_connected(self) -> bool:
        return self._link.sends and self._link.receives and self.server.is_up

    def later(self, callback: Callable[..., None], *args: Any) -> None:
        """In the order in which it is called, as over one connection."""
        loop = asyncio.get_running_loop()
        at = max(loop.time() + self._link.delay_s(), self._last_delivery + FIFO_S)
        self._last_delivery = at
        loop.call_at(at, self._if_alive, callback, *args, context=self._process.context)

    def _if_alive(self, callback: Callable[..., None], *args: Any) -> None:
        if not self._process.is_dead:
            callback(*args)

    def deliver(self, listener: Listener, data: bytes) -> None:
        if self._link.receives:
            self.later(listener, data)

    async def _call(self, operation: Callable[[], Awaitable[T]], *, stores: bool = False) -> T:
        """One round trip. A reply that is lost leaves open whether it was carried out."""
        loop = asyncio.get_running_loop()
        until = loop.time() + REQUEST_S
        await self._on_the_way()
        if self._link.sends and (self.server.stores if stores else self.server.is_up):
            try:
                async with asyncio.timeout_at(until):
                    done, error = await _outcome(operation)
            except TimeoutError:
                raise Unreachable(URL, "no answer in time") from None
            await self._on_the_way()
            if self.server.is_up and not self._link.loses():
                if error is not None:
                    raise error
                return done  # type: ignore[return-value]
        await asyncio.sleep(until - loop.time())
        require_alive()
        raise Unreachable(URL, "no answer in time")

    async def _on_the_way(self) -> None:
        require_alive()
        await asyncio.sleep(self._link.delay_s())
        require_alive()

    async def asked(self, operation: Callable[[], Awaitable[T]]) -> T:
        return await self._call(operation)

    async def arrives(self) -> bool:
        """Whether something that is sent now gets to the broker."""
        await self._on_the_way()
        return self._link.sends and self.server.is_up

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._process.spawn(work)

    async def publish(self, messages: Sequence[Message]) -> None:
        """Sends each message until its acknowledgement arrives."""
        waiting = list(messages)
        while waiting:
            await self._on_the_way()
            stored = self._link.sends and self.server.stores
            if stored:
                stored = await self._has_stored(waiting)
            await self._on_the_way()
            if stored and self.server.is_up:
                waiting = [each for each in waiting if self._link.loses()]
            if waiting:
                await asyncio.sleep(RESEND_S)

    async def _has_stored(self, messages: Sequence[Message]) -> bool:
        """Whether the stream had room."""
        try:
            await self._inner.publish(messages)
        except BrokerRefused:
            return False
        return True

    async def append(
        self, stream: Stream, messages: Sequence[Message], expected: Mapping[str, int]
    ) -> None:
        await self._call(lambda: self._inner.append(stream, messages, expected), stores=True)

    async def last(self, stream: Stream, subject: str) -> Stored | None:
        return await self._call(lambda: self._inner.last(stream, subject))

    async def message(self, stream: Stream, sequence: int) -> Record | None:
        return await self._call(lambda: self._inner.message(stream, sequence))

    async def state(self, stream: Stream) -> StreamState:
        return await self._call(lambda: self._inner.state(stream))

    async def tip(self, stream: Stream) -> StreamTip:
        return await self._call(lambda: self._tip(stream))

    async def _tip(self, stream: Stream) -> StreamTip:
        found, lost_at = await self._inner.tip(stream), self.server.lost_quorum_at
        since = 0.0 if lost_at is None else self.server.clock() - lost_at
        return found._replace(unconfirmed_ns=int(since * 1e9))

    async def size(self, stream: Stream) -> StreamSize:
        return await self._call(lambda: self._inner.size(stream))

    async def incomplete_copies(self) -> Sequence[IncompleteCopy]:
        return () if self._holes is None else await self._holes.round()

    @contextlib.asynccontextmanager
    async def reading(
        self,
        stream: Stream,
        after: int,
        created: str = "",
        wakeup: asyncio.Event | None = None,
        digest: bytes = b"",
    ) -> AsyncGenerator[Reader, None]:
        at = stream, after, created, wakeup, digest
        reading = self._from_memory if self._connection is None else self._from_copies
        async with reading(*at) as reader:
            yield reader

    @contextlib.asynccontextmanager
    async def _from_copies(
        self,
        stream: Stream,
        after: int,
        created: str,
        wakeup: asyncio.Event | None,
        digest: bytes,
    ) -> AsyncGenerator[Reader, None]:
        """By the reader of JetStream; the event in memory passes on that something was stored."""
        connection, end = self._connection, self.server.broker.stream(stream).last
        stored = _Bell(lambda: connection.stored(stream))
        async with (
            self._inner.reading(stream, end, "", stored),
            ConsumerReader.on(connection, stream, after, created, wakeup, digest) as reader,
        ):
            yield reader

    @contextlib.asynccontextmanager
    async def _from_memory(
        self,
        stream: Stream,
        after: int,
        created: str,
        wakeup: asyncio.Event | None,
        digest: bytes,
    ) -> AsyncGenerator[Reader, None]:
        inner_bell = _Bell()
        await self._call(lambda: self._inner.state(stream))
        async with self._inner.reading(stream, after, created, inner_bell, digest) as inner:
            reader = LinkedReader(self, stream, inner, wakeup or asyncio.Event())
            inner_bell.passed_on = reader.sent
            self._link.heard.append(reader.sent)
            reader.sent()
            try:
                yield reader
            finally:
                self._link.heard.remove(reader.sent)

    def leave_server(self, why: str) -> None:
        """There is one."""

    async def send_live(self, subject: str, data: bytes) -> None:
        await self._on_the_way()
        if self._link.sends:
            self.server.send(subject, data)

    @contextlib.asynccontextmanager
    async def listening(self, subject: str, listener: Listener) -> AsyncGenerator[None, None]:
        self.server.join(subject, self, listener)
        try:
            yield
        finally:
            self.server.leave(listener)


async def _outcome(operation: Callable[[], Awaitable[T]]) -> tuple[T | None, BusError | None]:
    try:
        return await operation(), None
    except BusError as error:
        return None, error
