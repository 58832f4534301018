"""Reads one stream in order, from a position that the reader keeps.

Every sequence is checked: if the stream itself has a gap, reading ends with an error; if only the
copy of one server has it, another server is read (`copies`). The position is stored with the rows
(docs/decisions/0003), so nothing is acknowledged.

Each reader starts at the position itself, to check that the message there is the one that was read
before. A stream that was restored from an older state and has grown since holds another one.

How the messages come is in `reader` (a consumer) and `direct` (requests for batches).
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Self, TypeVar

from nats.errors import Error as NatsError

from joulie_bus.errors import BrokerRefused, StreamGap, StreamReplaced, Unreachable
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.copies import Copies
from joulie_bus.jetstream.streams import state_of
from joulie_bus.log.answered import TEMPORARY
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.runtime.vital_tasks import VitalTask, living
from joulie_bus.streams.records import Record, StreamState, digest_of
from joulie_bus.streams.subjects import Stream

PULL = 2500  # messages per request
RETRY_S = 0.2
LATE_TRIES = 50  # ten seconds
START_S = 1.0  # for each step of a reader that knows its stream; what is wrong is found later
T = TypeVar("T")
log = get_logger("bus")


class OrderedReader(ABC):
    """`async with Reader.on(connection, stream, after=...)`, then `take` again and again."""

    def __init__(
        self, connection: Connection, stream: Stream, after: int, wakeup: asyncio.Event
    ) -> None:
        self.stream = stream
        self.created = ""
        self.digest = b""  # of the message at `position`; empty: not known yet
        self.position = after  # the last sequence that was taken into the buffer
        self.pending = 0  # messages in the stream after the newest received one
        self._connection = connection
        self._copies = Copies(stream)
        self._buffer: deque[Record] = deque()
        self._newest: Record | None = None  # of those put into the buffer
        self._wakeup = wakeup
        self._wake = asyncio.Event()
        self._inbox = ""
        self._clock = asyncio.get_running_loop().time
        self._received_at = 0.0
        self._broken = False
        self._life = 0
        self._leader = StreamState(stream, "", 0, 0)  # at the last look
        self._failure: Exception | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def on(
        cls,
        connection: Connection,
        stream: Stream,
        after: int,
        created: str = "",
        wakeup: asyncio.Event | None = None,
        digest: bytes = b"",
    ) -> AsyncGenerator[Self, None]:
        """`created` identifies the stream that `after` belongs to, if known, and `digest` the
        message at `after`.

        `wakeup` is set when `take` has records or an error; readers may share one.
        """
        reader = cls(connection, stream, after, wakeup or asyncio.Event())
        reader.created, reader.digest = created, digest
        reader._inbox = connection.new_inbox()
        async with reader._subscribed():
            await reader._begin_or_retry()
            async with living(VitalTask.PULL, reader._keep_reading, stream):
                yield reader

    @abstractmethod
    def _subscribed(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Receives the answers to the inbox."""

    @abstractmethod
    async def _begin(self) -> None:
        """Starts at the position, for the first time or again."""

    @abstractmethod
    async def _ask_if_there_is_room(self) -> None:
        """Asks for more messages, if the buffer has room for them."""

    @abstractmethod
    def _on_gap(self, first: int) -> None:
        """The copy that is read lacks the next message, and continues at `first`."""

    @property
    @abstractmethod
    def _wants_more(self) -> bool: ...

    @property
    @abstractmethod
    def _is_silent(self) -> bool:
        """Whether an answer is overdue."""

    async def _waiting_for(self, asking: Coroutine[Any, Any, T]) -> T:
        """Awaits what may take long while the broker elects leaders."""
        return await asking

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

    async def _begin_or_retry(self) -> None:
        """Raises what is wrong from the start. If the stream is known, a broker that does not
        answer for the moment is asked again, as later.
        """
        try:
            async with asyncio.timeout(START_S if self.created else None):
                await self._check_history()
            async with asyncio.timeout(START_S):
                await self._begin()
        except (Unreachable, BrokerRefused, TimeoutError) as error:
            passes = not isinstance(error, BrokerRefused) or error.code in TEMPORARY
            if not (self.created and passes):
                raise
            # A time-out has no text.
            log.warning("pull_failed", stream=self.stream, error=str(error) or repr(error))
            self._broken = True

    async def _restart(self) -> None:
        await self._check_history()
        await self._begin()

    async def _check_history(self) -> None:
        position = self.position  # it may be read further before the answer arrives
        state = await state_of(self._connection, self.stream)
        if self.created and self.created != state.created:
            raise StreamReplaced(
                self.stream, f"one created at {self.created}", f"one created at {state.created}"
            )
        self.created = state.created
        if state.last < position and not await self._is_found_again(state, position):
            raise StreamReplaced(
                self.stream,
                f"sequence {position}",
                f"sequence {state.last} (the stream lost messages that were read)",
            )
        self._copies.are_those_of(state)
        self._leader = state
        if state.first > self.position + 1:
            self._copies.lack(state.leader, self.position + 1, state.first)
            self._require_a_copy()
        self._update_digest()
        if self.digest and state.first > self.position:
            # The message at the position was trimmed, so there is nothing else to compare.
            log.info("not_compared", stream=self.stream, position=self.position, why="trimmed")

    async def _is_found_again(self, state: StreamState, position: int) -> bool:
        """Whether the end of the stream is behind the position again, in some seconds. A server
        that was cut from the others may answer from a copy that is late.
        """
        tries = LATE_TRIES if state.servers else 0
        for _ in range(tries):
            await asyncio.sleep(RETRY_S)
            if (await state_of(self._connection, self.stream)).last >= position:
                return True
        return False

    def _require_a_copy(self) -> None:
        """Raises StreamGap if every server lacks the next message. To be called after `lack`."""
        wanted = self.position + 1
        if self._copies.all_lack(wanted):
            raise StreamGap(self.stream, wanted, self._copies.first_after(wanted))

    async def _keep_reading(self) -> None:
        while self._failure is None:
            try:
                # The requests of an earlier connection were lost with it.
                if self._broken or self._life != self._connection.lives or self._is_silent:
                    await self._waiting_for(self._restart())
                await self._ask_if_there_is_room()
                await wait_and_clear(self._wake, RETRY_S)
            except (Unreachable, BrokerRefused, NatsError, OSError) as error:
                log.warning("pull_failed", stream=self.stream, error=str(error))
                self._broken = True
                await asyncio.sleep(RETRY_S)
            except (StreamGap, StreamReplaced) as error:
                self._fail(error)
        await asyncio.Event().wait()  # `take` raises the failure

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error  # later failures follow from the first
        self._wakeup.set()

    def _accept(self, found: Record, pending: int) -> None:
        """Takes the next message into the buffer. No delivery was lost before it."""
        if self._broken:
            return  # reading starts again at the position
        if found.sequence <= self.position:
            self._compare(found)
            return
        if found.sequence != self.position + 1:
            self._broken = True  # the gap is in the copy that is read: continue with another one
            self._on_gap(found.sequence)
            self._wake.set()
            return
        self._append(found, pending)

    def _append(self, found: Record, pending: int) -> None:
        self.position = found.sequence
        self.pending = pending
        self._newest = found
        self._buffer.append(found)
        self._wakeup.set()
        if self._wants_more:
            self._wake.set()

    def _update_digest(self) -> None:
        if self._newest is not None:
            self.digest = digest_of(self._newest)

    def _compare(self, found: Record) -> None:
        """Compares the message at the position with the one read before, if that is known."""
        if found.sequence != self.position:
            return
        self._update_digest()
        self.digest = self.digest or digest_of(found)
        if digest_of(found) != self.digest:
            self._fail(StreamReplaced.at(self.stream, self.position))
