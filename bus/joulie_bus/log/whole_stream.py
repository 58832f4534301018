"""Reads messages of a stream at once, to look at them or to compare them with something."""

import asyncio
from collections.abc import AsyncGenerator

from joulie_bus.errors import StreamSilent
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

PATIENCE_S = 30.0
AT_ONCE = 1000


async def everything(bus: Log, stream: Stream) -> list[Record]:
    """All messages of the stream."""
    return await messages(bus, stream, *await whole(bus, stream))


async def whole(bus: Log, stream: Stream) -> tuple[int, int]:
    """The sequence before the first message, and the number of messages."""
    state = await bus.state(stream)
    return max(0, state.first - 1), state.last - state.first + 1 if state.last else 0


async def messages(
    bus: Log, stream: Stream, after: int, wanted: int, patience_s: float = PATIENCE_S
) -> list[Record]:
    """At least so many messages after the sequence `after`."""
    read = batches(bus, stream, after, wanted, patience_s)
    return [record async for some in read for record in some]


async def batches(
    bus: Log, stream: Stream, after: int, wanted: int, patience_s: float = PATIENCE_S
) -> AsyncGenerator[list[Record], None]:
    """The same as they arrive. A caller that needs no more closes the generator.

    Raises StreamGap if some of them were removed, and StreamSilent if none arrives for a while.
    """
    found, wakeup = 0, asyncio.Event()
    async with bus.reading(stream, after, wakeup=wakeup) as reader:
        while found < wanted:
            if records := reader.take(AT_ONCE):
                found += len(records)
                yield records
            elif not await wait_and_clear(wakeup, patience_s):
                raise StreamSilent(stream, found, wanted, patience_s)
