"""The stream of a console: server-sent events, continued after a lost connection."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from joulie.client.connection import ConsoleConnection, decoded
from joulie_answers.schema import routes
from joulie_answers.schema.responses import STREAM_VALUES, StreamValue
from joulie_bus.core.backoff import Backoff
from joulie_bus.errors import ConsoleNotReached, ConsoleRefused

LARGEST_FRAME = 16 << 20
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
PASSING = frozenset({502, 503, 504})  # while a console or a proxy restarts
CUT = "cut"
_DECODERS = {kind: msgspec.json.Decoder(cls) for kind, cls in STREAM_VALUES.items()}


class StreamEvent(NamedTuple):
    kind: str  # decision, plan, transition, cluster, map; gap: earlier events are not available
    id: str  # `queries.Stream(after=ID)` continues after this event
    value: StreamValue


class Frame(NamedTuple):
    kind: str
    id: str  # empty: it moves no cursor
    data: bytes


class EventStream:
    def __init__(
        self,
        connection: ConsoleConnection,
        parameters: Mapping[str, str],
        after: str,
        patience_s: float,
    ) -> None:
        self._connection = connection
        self._parameters = parameters
        self._cursor = after
        self._patience_s = patience_s
        self._heard_at = time.monotonic()
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        self._heard_at = time.monotonic()
        while True:
            why = "the connection ended."
            try:
                async with aclosing(self._one_connection()) as events:
                    async for event in events:
                        yield event
            except ConsoleNotReached as error:
                why = str(error)
            except ConsoleRefused as error:
                if error.status not in PASSING:
                    raise
                why = str(error)
            pause_s = self._backoff.failed()
            if time.monotonic() + pause_s - self._heard_at > self._patience_s:
                raise ConsoleNotReached(
                    self._connection.url,
                    f"no event and no heartbeat for {self._patience_s:.0f} s, at last: {why} "
                    f"The stream ended after {self._cursor or 'nothing'}.",
                )
            await asyncio.sleep(pause_s)

    async def _one_connection(self) -> AsyncGenerator[StreamEvent, None]:
        from joulie.client.streamed import SILENT_S, chunks_of  # a command has no stream

        headers = {"Last-Event-ID": self._cursor} if self._cursor else {}
        path = routes.STREAM.path
        async with chunks_of(self._connection, path, self._parameters, headers) as chunks:
            async for frame in self._frames(chunks, SILENT_S):
                self._heard_at = time.monotonic()
                self._backoff.succeeded()
                self._cursor = frame.id or self._cursor
                if frame.kind == CUT:
                    return
                if (decoder := _DECODERS.get(frame.kind)) is not None:
                    value = decoded(self._connection.url, path, frame.data, decoder)
                    yield StreamEvent(frame.kind, self._cursor, value)

    async def _frames(self, chunks: AsyncIterator[bytes], silent_s: float) -> AsyncIterator[Frame]:
        """Whole frames only: the rest of a lost connection is sent again by the next one."""
        rest, framed_at = b"", time.monotonic()
        async for chunk in chunks:
            *frames, rest = (rest + chunk).split(b"\n\n")
            for frame in frames:
                yield parsed(frame)
            now = time.monotonic()
            framed_at = now if frames else framed_at
            if now - framed_at > silent_s:
                why = f"it sent neither an event nor a heartbeat for {silent_s:g} s."
                raise ConsoleNotReached(self._connection.url, why)
            if len(rest) > LARGEST_FRAME:
                why = "it sent an event without an end."
                raise ConsoleNotReached(self._connection.url, why)


def parsed(frame: bytes) -> Frame:
    kind, found_id, data = "", "", list[bytes]()
    for line in frame.split(b"\n"):
        name, _, value = line.partition(b": ")
        if name == b"event":
            kind = value.decode("utf-8", "replace")
        elif name == b"id":
            found_id = value.decode("utf-8", "replace")
        elif name == b"data":
            data.append(value)
    return Frame(kind, found_id, b"\n".join(data))
