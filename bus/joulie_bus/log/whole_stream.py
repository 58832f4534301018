"""Reads a whole stream at once, to compare it with something."""

import asyncio

from joulie_bus.errors import StreamSilent
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

PATIENCE_S = 30.0
AT_ONCE = 1000


async def everything(bus: Log, stream: Stream) -> list[Record]:
    """All messages of the stream.

    Raises StreamGap if some in between were removed, and StreamSilent if none arrives for a while.
    """
    state = await bus.state(stream)
    found: list[Record] = []
    bell = asyncio.Event()
    wanted = state.last - state.first + 1 if state.last else 0
    async with bus.reading(stream, max(0, state.first - 1), bell=bell) as reader:
        while len(found) < wanted:
            records = reader.take(AT_ONCE)
            found.extend(records)
            if not records and not await wait_and_clear(bell, PATIENCE_S):
                raise StreamSilent(stream, len(found), wanted, PATIENCE_S)
    return found
