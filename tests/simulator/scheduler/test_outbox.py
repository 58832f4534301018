import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import NodeGone
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_bus.testing import connected, producer, stored
from joulie_simulator.scheduler.outbox import MOST, Outbox

pytestmark = pytest.mark.anyio


def gone(first: int, count: int) -> list[NodeGone]:
    return [NodeGone(node=f"n{number}") for number in range(first, first + count)]


def as_told(events: list[NodeGone]) -> list[bytes]:
    says = producer()
    return [says.stamp(event).data for event in events]


async def told(connection: Connection) -> list[bytes]:
    return [record.data for record in await stored(connection, Stream.OBS)]


@contextlib.asynccontextmanager
async def teller(bus: JetStreamLog) -> AsyncGenerator[Outbox, None]:
    outbox = Outbox(bus, producer())
    async with background(outbox.tell_for_ever(), "tell"):
        yield outbox


async def test_what_was_seen_is_told_in_its_order(
    connection: Connection, bus: JetStreamLog
) -> None:
    async with teller(bus) as outbox, asyncio.timeout(30):
        for number in range(50):
            await outbox.put(gone(number, 1))
        await outbox.put(gone(50, 200))
        while len(await told(connection)) < 250:
            await asyncio.sleep(0)

    assert await told(connection) == as_told(gone(0, 250))


async def test_a_list_is_stored_when_it_was_told(connection: Connection, bus: JetStreamLog) -> None:
    await Outbox(bus, producer()).tell(gone(0, 2500))

    assert await told(connection) == as_told(gone(0, 2500))


async def test_many_who_tell_at_once_take_nothing_from_each_other(
    connection: Connection, bus: JetStreamLog
) -> None:
    async with teller(bus) as outbox, asyncio.timeout(30):
        await asyncio.gather(*(outbox.tell(gone(first, 300)) for first in range(0, 3000, 300)))

    assert await told(connection) == as_told(gone(0, 3000))


async def test_who_acts_goes_on_while_the_broker_is_away_and_all_is_told_later(
    broker: Embedded, bus: JetStreamLog
) -> None:
    async with teller(bus) as outbox, asyncio.timeout(60):
        broker.kill()
        await broker.wait()
        await outbox.put(gone(0, 30))
        await outbox.put(gone(30, 30))
        await broker.start()
        async with connected(broker) as anew:
            while len(await told(anew)) < 60:
                await asyncio.sleep(0)
            assert await told(anew) == as_told(gone(0, 60))


async def test_who_sees_more_than_is_kept_untold_waits(bus: JetStreamLog) -> None:
    outbox = Outbox(bus, producer())
    await outbox.put(gone(0, MOST))
    waiting = asyncio.create_task(outbox.put(gone(MOST, 1)))
    await asyncio.sleep(0)
    too_many = waiting.done()
    async with background(outbox.tell_for_ever(), "tell"), asyncio.timeout(30):
        await waiting

    assert not too_many
