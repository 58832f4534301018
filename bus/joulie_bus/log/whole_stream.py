"""Reads messages of a stream at once, to look at them or to compare them with something."""

import asyncio

from joulie_bus.errors import StreamSilent
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

PATIENCE_S = 30.0
AT_ONCE = 1000


async def everything(bus: Log, stream: Stream) -> list[Record]:
    """All messages of the stream."""
    state = await bus.state(stream)
    wanted = state.last - state.first + 1 if state.last else 0
    return await messages(bus, stream, max(0, state.first - 1), wanted)


async def messages(
    bus: Log, stream: Stream, after: int, wanted: int, patience_s: float = PATIENCE_S
) -> list[Record]:
    """At least so many messages after the sequence `after`.

    Raises StreamGap if some of them were removed, and StreamSilent if none arrives for a while.
    """
    found: list[Record] = []
    bell = asyncio.Event()
    async with bus.reading(stream, after, bell=bell) as reader:
        while len(found) < wanted:
            records = reader.take(AT_ONCE)
            found.extend(records)
            if not records and not await wait_and_clear(bell, patience_s):
                raise StreamSilent(stream, len(found), wanted, patience_s)
    return found
