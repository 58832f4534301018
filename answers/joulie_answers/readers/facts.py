"""How answers about the past reach the facts: each answer opens them, and closes them again."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager

from joulie_answers.readers.history import HistoryReader
from joulie_audit.archive.fact_source import RetainedFacts, StreamFacts, streams_of
from joulie_bus.log.protocol import Log

OpenFacts = Callable[[], AbstractAsyncContextManager[RetainedFacts]]


def in_streams(bus: Log, history: HistoryReader) -> OpenFacts:
    @contextlib.asynccontextmanager
    async def opened() -> AsyncGenerator[StreamFacts, None]:
        streams = await history.run(streams_of)
        async with StreamFacts.over(bus, streams) as facts:
            yield facts

    return opened
