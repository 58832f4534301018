import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from bus_kit import connected, producer, stored
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import NodeGone
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import state_of
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_simulator.scheduler.outbox import MAX_QUEUED, Outbox

pytestmark = pytest.mark.anyio


def gone(first: int, count: int) -> list[NodeGone]:
    return [NodeGone(node=f"n{number}") for number in range(first, first + count)]


def encoded(events: list[NodeGone]) -> list[bytes]:
    stamping = producer()
    return [stamping.stamp(event).data for event in events]


async def stored_bodies(connection: Connection) -> list[bytes]:
    return [record.data for record in await stored(connection, Stream.OBS)]


@contextlib.asynccontextmanager
async def publishing_outbox(bus: JetStreamLog) -> AsyncGenerator[Outbox, None]:
    outbox = Outbox(bus, producer())
    async with background(outbox.publish_forever(), "tell"):
        yield outbox


async def test_events_are_published_in_order(connection: Connection, bus: JetStreamLog) -> None:
    async with publishing_outbox(bus) as outbox, asyncio.timeout(60):
        for number in range(50):
            await outbox.put(gone(number, 1))
        await outbox.put(gone(50, 200))
        while len(await stored_bodies(connection)) < 250:
            await asyncio.sleep(0)

    assert await stored_bodies(connection) == encoded(gone(0, 250))


async def test_publish_returns_after_the_events_are_stored(
    connection: Connection, bus: JetStreamLog
) -> None:
    await Outbox(bus, producer()).publish(gone(0, 2500))

    assert await stored_bodies(connection) == encoded(gone(0, 2500))


async def test_concurrent_publishers_neither_lose_nor_repeat_events(
    connection: Connection, bus: JetStreamLog
) -> None:
    async with publishing_outbox(bus) as outbox, asyncio.timeout(60):
        await asyncio.gather(*(outbox.publish(gone(first, 300)) for first in range(0, 3000, 300)))

    assert await stored_bodies(connection) == encoded(gone(0, 3000))


async def test_put_does_not_wait_for_the_broker_and_events_are_published_later(
    broker: Embedded, bus: JetStreamLog
) -> None:
    async with publishing_outbox(bus) as outbox, asyncio.timeout(60):
        broker.kill()
        await broker.wait()
        await outbox.put(gone(0, 30))
        await outbox.put(gone(30, 30))
        await broker.start()
        async with connected(broker) as anew:
            while (await state_of(anew, Stream.OBS)).last < 60:
                await asyncio.sleep(0)
            assert await stored_bodies(anew) == encoded(gone(0, 60))


async def test_put_waits_while_the_queue_is_full(bus: JetStreamLog) -> None:
    outbox = Outbox(bus, producer())
    await outbox.put(gone(0, MAX_QUEUED))
    waiting = asyncio.create_task(outbox.put(gone(MAX_QUEUED, 1)))
    await asyncio.sleep(0)
    too_many = waiting.done()
    async with background(outbox.publish_forever(), "tell"), asyncio.timeout(60):
        await waiting

    assert not too_many
