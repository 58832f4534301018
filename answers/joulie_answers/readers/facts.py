"""How answers about the past reach the facts: each answer opens them, and closes them again."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from joulie_answers.readers.history import HistoryReader
from joulie_audit.archive.fact_source import FactSource, StreamFacts, streams_of
from joulie_bus.log.protocol import Log
from joulie_bus.streams.subjects import Stream


class RetainedFacts(FactSource, Protocol):
    async def first_of(self, stream: Stream, /) -> int:
        """The first sequence that can still be read."""
        ...


OpenFacts = Callable[[], AbstractAsyncContextManager[RetainedFacts]]


def in_streams(bus: Log, history: HistoryReader) -> OpenFacts:
    @contextlib.asynccontextmanager
    async def opened() -> AsyncGenerator[StreamFacts, None]:
        streams = await history.run(streams_of)
        async with StreamFacts.over(bus, streams) as facts:
            yield facts

    return opened
