"""A log in memory with an injected clock. It passes the same contract suite as JetStream."""

import asyncio
import contextlib
import copy
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from joulie_bus.errors import BrokerRefused, ExpectationFailed, StreamGap, StreamReplaced
from joulie_bus.log.protocol import Listener, require_appendable, require_speakable
from joulie_bus.streams.records import (
    IncompleteCopy,
    Message,
    Record,
    Stored,
    StreamSize,
    StreamState,
    StreamTip,
    digest_of,
)
from joulie_bus.streams.subjects import Stream, Subjects

NO_STREAM = 10059
FULL = 10077


class _Kept:
    """One stream of the memory broker."""

    def __init__(self, created: str) -> None:
        self.created = created
        self.first = 1
        self.records: list[Record] = []
        self.newest: dict[str, Stored] = {}
        self.ids: set[str] = set()
        self.limit: int | None = None

    def copy(self) -> "_Kept":
        other = copy.copy(self)
        other.records, other.newest, other.ids = [*self.records], {**self.newest}, {*self.ids}
        return other

    def at(self, sequence: int) -> Record | None:
        return self.records[sequence - self.first] if self.first <= sequence <= self.last else None

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1

    def after(self, position: int) -> list[Record]:
        return self.records[max(0, position + 1 - self.first) :]


class MemoryBroker:
    """The state that several logs share; `clock` is the broker's clock."""

    def __init__(self, subjects: Subjects, clock: Callable[[], int]) -> None:
        self.listeners: dict[str, list[Listener]] = defaultdict(list)
        self.wakeups: dict[asyncio.Event, None] = {}  # in an order that each run repeats
        self._clock = clock
        self._lives = 0
        self._streams = {stream: self._fresh() for stream in Stream}
        self._patterns = [
            (pattern.split("."), stream)
            for stream in Stream
            for pattern in subjects.patterns(stream)
        ]

    def now(self) -> int:
        return self._clock()

    def stream(self, stream: Stream) -> _Kept:
        return self._streams[stream]

    def home_of(self, subject: str) -> Stream | None:
        tokens = subject.split(".")
        for pattern, stream in self._patterns:
            pairs = zip(tokens, pattern, strict=False)
            if len(tokens) == len(pattern) and all(p in ("*", t) for t, p in pairs):
                return stream
        return None

    def store(self, stream: Stream, message: Message) -> None:
        kept = self._streams[stream]
        if message.id in kept.ids:
            return
        self.require_room(stream, [message])
        sequence = kept.last + 1
        kept.records.append(Record(stream, sequence, self._clock(), message.data, message.subject))
        kept.newest[message.subject] = Stored(sequence, message.data)
        kept.ids.add(message.id)
        self.ring()

    def require_room(self, stream: Stream, messages: Sequence[Message]) -> None:
        kept = self._streams[stream]
        new = [message for message in messages if message.id not in kept.ids]
        if kept.limit is not None and new and len(kept.records) + len(new) > kept.limit:
            raise BrokerRefused(new[0].subject, FULL, "maximum messages exceeded")

    def ring(self) -> None:
        for wakeup in self.wakeups:
            wakeup.set()

    # --- faults that tests inject ------------------------------------------------------

    def fill(self, stream: Stream, room: int = 0) -> None:
        """From now on the stream takes only so many messages."""
        self._streams[stream].limit = len(self._streams[stream].records) + room

    def forget_ids(self) -> None:
        """As a broker does after a while: a message that is sent again is stored again."""
        for kept in self._streams.values():
            kept.ids.clear()

    def trim(self, stream: Stream, up_to: int) -> None:
        kept = self._streams[stream]
        kept.records = kept.after(up_to)
        kept.first = up_to + 1
        self.ring()

    def recreate(self, stream: Stream) -> None:
        self._streams[stream] = self._fresh()
        self.ring()

    def set_back(self, stream: Stream, older: _Kept) -> None:
        """Restores a stream from an earlier `stream(...).copy()`."""
        self._streams[stream] = older.copy()
        self.ring()

    def _fresh(self) -> _Kept:
        self._lives += 1
        return _Kept(f"life {self._lives}")


class MemoryReader:
    def __init__(
        self, broker: MemoryBroker, stream: Stream, after: int, created: str, digest: bytes
    ) -> None:
        self.created = created or broker.stream(stream).created
        self._digest = digest
        self._broker = broker
        self._stream = stream
        self._position = after
        self._check()

    @property
    def pending(self) -> int:
        return 0  # all stored messages can be taken at once

    def __len__(self) -> int:
        return len(self._broker.stream(self._stream).after(self._position))

    def take(self, limit: int) -> list[Record]:
        self._check()
        taken = self._broker.stream(self._stream).after(self._position)[:limit]
        if taken:
            self._position, self._digest = taken[-1].sequence, digest_of(taken[-1])
        return taken

    def _check(self) -> None:
        kept, here = self._broker.stream(self._stream), self._position
        if self.created != kept.created:
            known, found = f"one created at {self.created}", f"one created at {kept.created}"
            raise StreamReplaced(self._stream, known, found)
        if kept.last < here:
            raise StreamReplaced(self._stream, f"sequence {here}", f"sequence {kept.last}")
        if kept.first > here + 1:
            raise StreamGap(self._stream, here + 1, kept.first)
        if (newest := kept.at(here)) is not None:
            self._digest = self._digest or digest_of(newest)
            if digest_of(newest) != self._digest:
                raise StreamReplaced.at(self._stream, here)


class MemoryLog:
    """One client of the memory broker."""

    max_payload = 8 * 1024 * 1024

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = self._broker = broker

    async def publish(self, messages: Sequence[Message]) -> None:
        for message in messages:
            require_speakable(message.subject)
            home = self._broker.home_of(message.subject)
            if home is None:
                raise BrokerRefused(message.subject, NO_STREAM, "no stream takes this subject")
            self._broker.store(home, message)

    async def append(
        self, stream: Stream, messages: Sequence[Message], expected: Mapping[str, int]
    ) -> None:
        require_appendable(messages, expected)
        kept = self._broker.stream(stream)
        newest = kept.newest.get(messages[0].subject)
        if newest is not None and newest.data == messages[0].data:
            return  # a retry of a stored message
        for subject, sequence in expected.items():
            newest = kept.newest.get(subject)
            at = newest.sequence if newest else 0
            if at != sequence:
                raise ExpectationFailed(expected, f"{subject} is at {at}")
        self._broker.require_room(stream, messages)  # all of them, or none
        for message in messages:
            self._broker.store(stream, message)

    async def last(self, stream: Stream, subject: str) -> Stored | None:
        return self._broker.stream(stream).newest.get(subject)

    async def message(self, stream: Stream, sequence: int) -> Record | None:
        return self._broker.stream(stream).at(sequence)

    async def state(self, stream: Stream) -> StreamState:
        kept = self._broker.stream(stream)
        return StreamState(stream, kept.created, kept.first, kept.last)

    async def tip(self, stream: Stream) -> StreamTip:
        kept = self._broker.stream(stream)
        return StreamTip(stream, kept.created, kept.last, self._broker.now())

    async def incomplete_copies(self) -> Sequence[IncompleteCopy]:
        return ()  # there is one copy

    async def purge(self, stream: Stream, before: int) -> None:
        if before > self._broker.stream(stream).first:
            self._broker.trim(stream, before - 1)

    async def size(self, stream: Stream) -> StreamSize:
        kept = self._broker.stream(stream)
        ends = (kept.records[0].at, kept.records[-1].at) if kept.records else (0, 0)
        held = sum(len(record.data) for record in kept.records)
        return StreamSize(stream, held, 0, stream is Stream.TEL, kept.first, *ends, kept.last)

    @contextlib.asynccontextmanager
    async def reading(
        self,
        stream: Stream,
        after: int,
        created: str = "",
        wakeup: asyncio.Event | None = None,
        digest: bytes = b"",
    ) -> AsyncGenerator[MemoryReader, None]:
        wakeup = wakeup or asyncio.Event()
        reader = MemoryReader(self._broker, stream, after, created, digest)
        self._broker.wakeups[wakeup] = None
        wakeup.set()
        try:
            yield reader
        finally:
            self._broker.wakeups.pop(wakeup, None)

    def leave_server(self, why: str) -> None:
        """There is one."""

    async def send_live(self, subject: str, data: bytes) -> None:
        for listener in list(self._broker.listeners[subject]):
            listener(data)

    @contextlib.asynccontextmanager
    async def listening(self, subject: str, listener: Listener) -> AsyncGenerator[None, None]:
        self._broker.listeners[subject].append(listener)
        try:
            yield
        finally:
            self._broker.listeners[subject].remove(listener)
