"""The protocol of the bus: an ordered log, and live messages that are not stored.

`jetstream` implements it, and `memory` for tests; one contract suite runs against both.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from joulie_bus.errors import BrokerRefused
from joulie_bus.streams.batch_limits import MAX_BATCH
from joulie_bus.streams.records import (
    LONGEST_SUBJECT,
    IncompleteCopy,
    Message,
    Record,
    Stored,
    StreamSize,
    StreamState,
    StreamTip,
)
from joulie_bus.streams.subjects import Stream

TOO_LONG = 400  # the broker itself returns no reason
Listener = Callable[
    [bytes], None
]  # must neither wait nor raise: it runs in the read loop of the connection

Answer = Callable[[bytes], Awaitable[bytes]]  # must not raise


def require_appendable(messages: Sequence[Message], expected: Mapping[str, int]) -> None:
    """Raises for mistakes of the caller, with a clearer message than the broker's."""
    if not 0 < len(messages) <= MAX_BATCH:
        raise ValueError(f"a batch holds 1 to {MAX_BATCH} messages, not {len(messages)}")
    for message in messages:
        require_speakable(message.subject)
    unwritten = sorted(expected.keys() - {message.subject for message in messages})
    if unwritten:
        raise ValueError(f"nothing in the batch is written on {unwritten[0]}, so nothing guards it")


def require_speakable(subject: str) -> None:
    """Refuses a subject whose protocol line is too long; the broker would close the connection."""
    if len(subject) > LONGEST_SUBJECT:
        why = f"{len(subject)} characters are more than the {LONGEST_SUBJECT} of a subject"
        raise BrokerRefused(f"{subject[:80]}...", TOO_LONG, why)


class Reader(Protocol):
    """Reads one stream in order, from a position that the caller stores."""

    @property
    def created(self) -> str:
        """The identity of the stream: when it was created."""
        ...

    @property
    def pending(self) -> int:
        """How many messages the stream held after the newest one received."""
        ...

    def __len__(self) -> int:
        """How many records `take` can return now."""
        ...

    def take(self, limit: int) -> list[Record]:
        """At most `limit` received records; never waits. Raises if reading cannot continue."""
        ...


class Log(Protocol):
    @property
    def max_payload(self) -> int:
        """The maximum size of a message in bytes."""
        ...

    async def publish(self, messages: Sequence[Message]) -> None:
        """Returns when all are stored, each once. Raises BrokerRefused if one cannot be stored."""
        ...

    async def append(
        self, stream: Stream, messages: Sequence[Message], expected: Mapping[str, int]
    ) -> None:
        """All or nothing, if each subject in `expected` is still at its sequence (0: empty).

        Raises ExpectationFailed if another writer came first. A retry of a stored batch succeeds.
        """
        ...

    async def last(self, stream: Stream, subject: str) -> Stored | None:
        """The newest message of a subject."""
        ...

    async def message(self, stream: Stream, sequence: int) -> Record | None:
        """The message at a sequence; None if the stream holds none there."""
        ...

    async def state(self, stream: Stream) -> StreamState: ...

    async def tip(self, stream: Stream) -> StreamTip:
        """The end of a stream, by a round trip to the broker."""
        ...

    async def size(self, stream: Stream) -> StreamSize: ...

    async def incomplete_copies(self) -> Sequence[IncompleteCopy]:
        """Copies of streams that lack messages, as far as this and earlier calls examined them."""
        ...

    def reading(
        self,
        stream: Stream,
        after: int,
        created: str = "",
        wakeup: asyncio.Event | None = None,
        digest: bytes = b"",
    ) -> AbstractAsyncContextManager[Reader]:
        """Reads the messages after `after`. `created` identifies the stream of this position, if
        known, and `digest` is that of the message at `after` (`records.digest_of`).

        `wakeup` is set when `take` has records or an error; readers may share one. On entering or
        from `take`, StreamReplaced is raised if the stream is another one or holds another message
        at `after`, and StreamGap if it lacks the next message. A message at `after` that was
        trimmed is not compared.
        """
        ...

    def leave_server(self, why: str) -> None:
        """Continues at another server of the broker, if there is one."""
        ...

    async def send_live(self, subject: str, data: bytes) -> None:
        """Sends a live message to current listeners; never stored, and lost if the bus is down."""
        ...

    def listening(self, subject: str, listener: Listener) -> AbstractAsyncContextManager[None]:
        """Passes live messages to `listener` while the block runs."""
        ...
