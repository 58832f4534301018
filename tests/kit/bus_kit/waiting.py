"""Waiting for a condition, and reading what a stream stores."""

import asyncio
from collections.abc import Callable

from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.direct import DirectReader
from joulie_bus.jetstream.reader import ConsumerReader
from joulie_bus.jetstream.streams import state_of
from joulie_bus.runtime import metrics
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

PATIENCE_S = 120.0  # of a busy machine: no test is judged by it


async def until(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Polls until `condition()` is true; for state that offers nothing to wait on."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def stored(connection: Connection, stream: Stream) -> list[Record]:
    """All messages of a stream, in order."""
    state, wakeup, found = await state_of(connection, stream), asyncio.Event(), list[Record]()
    after = max(0, state.first - 1)
    on = DirectReader.on if connection.address.direct else ConsumerReader.on
    async with asyncio.timeout(PATIENCE_S), on(connection, stream, after, wakeup=wakeup) as reader:
        while after + len(found) < state.last:
            await wait_and_clear(wakeup, 1)
            found += reader.take(10_000)
    return found


def refusals(what: str) -> float:
    """How often the broker has refused messages of this kind."""
    (counter,) = metrics.PUBLISH_REFUSED.labels(what=what).collect()
    return next(sample.value for sample in counter.samples if sample.name.endswith("_total"))
