"""What the rest of the system asks of a bus: an ordered log, and a way to tell things live.

`jetstream` is the real one, `memory` its twin for tests; one contract suite holds both.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from joulie_bus.errors import BrokerRefused
from joulie_bus.streams.records import (
    LONGEST_SUBJECT,
    Message,
    Record,
    Stored,
    StreamSize,
    StreamState,
)
from joulie_bus.streams.subjects import Stream

TOO_LONG = 400  # in place of the broker's answer: it gives none
MAX_BATCH = 1000  # messages that `append` takes at once
Listener = Callable[[bytes], None]  # must neither wait nor raise: others wait for it


def require_appendable(messages: Sequence[Message], expected: Mapping[str, int]) -> None:
    """The caller's mistakes, which no broker would name as well."""
    if not 0 < len(messages) <= MAX_BATCH:
        raise ValueError(f"a batch holds 1 to {MAX_BATCH} messages, not {len(messages)}")
    for message in messages:
        require_speakable(message.subject)
    unwritten = sorted(expected.keys() - {message.subject for message in messages})
    if unwritten:
        raise ValueError(f"nothing in the batch is written on {unwritten[0]}, so nothing guards it")


def require_speakable(subject: str) -> None:
    """The line of the protocol that names it would be too long: the broker hangs up then."""
    if len(subject) > LONGEST_SUBJECT:
        why = f"{len(subject)} characters are more than the {LONGEST_SUBJECT} of a subject"
        raise BrokerRefused(f"{subject[:80]}...", TOO_LONG, why)


class Reader(Protocol):
    """One stream in order, from a position that its user keeps."""

    @property
    def created(self) -> str:
        """Which stream of that name this is."""
        ...

    @property
    def pending(self) -> int:
        """What the stream held behind the newest message that came."""
        ...

    def __len__(self) -> int:
        """How much there is to take."""
        ...

    def take(self, limit: int) -> list[Record]:
        """What is here, at most `limit`; never waits. Raises when the stream cannot be read on."""
        ...


class Log(Protocol):
    @property
    def max_payload(self) -> int:
        """Bytes of the largest message."""
        ...

    async def publish(self, messages: Sequence[Message]) -> None:
        """Returns when all are stored, each once; BrokerRefused if one can never be."""
        ...

    async def append(
        self, stream: Stream, messages: Sequence[Message], expected: Mapping[str, int]
    ) -> None:
        """All or nothing, if each subject in `expected` is still at its sequence (0: empty).

        ExpectationFailed if another writer came first. A retry of what was stored counts as stored.
        """
        ...

    async def last(self, stream: Stream, subject: str) -> Stored | None:
        """The newest message of a subject."""
        ...

    async def message(self, stream: Stream, sequence: int) -> Record | None:
        """One message by its place; None where the stream holds none there."""
        ...

    async def state(self, stream: Stream) -> StreamState: ...

    async def size(self, stream: Stream) -> StreamSize: ...

    def reading(
        self,
        stream: Stream,
        after: int,
        created: str = "",
        bell: asyncio.Event | None = None,
        digest: bytes = b"",
    ) -> AbstractAsyncContextManager[Reader]:
        """Reads on from `after`. `created` is the stream that this position belongs to, if known,
        and `digest` that of the message at `after` (`records.digest_of`).

        `bell` rings when there is something to take or a failure to raise; readers may share one.
        StreamReplaced or StreamGap, on entering or from `take`, if the stream is another one, if it
        holds another message at `after`, or if it does not hold what comes next. A message at
        `after` that was trimmed away is not compared.
        """
        ...

    async def tell(self, subject: str, data: bytes) -> None:
        """To whoever listens now; never stored, and lost if the bus is away."""
        ...

    def listening(self, subject: str, listener: Listener) -> AbstractAsyncContextManager[None]:
        """Hears what is told from the moment that the block begins."""
        ...
