"""A reader whose broker makes no consumer for the moment reads the copy of any server."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bare_stream import STREAM, fill, make_stream, read_to
from bus_kit import (
    CLUSTER,
    connected,
    running_cluster,
    until,
)
from joulie_bus.errors import StreamGap, StreamReplaced
from joulie_bus.jetstream import direct
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.direct import batch_from
from joulie_bus.jetstream.reader import ConsumerReader
from joulie_bus.jetstream.streams import ensure, state_of
from joulie_bus.streams.records import digest_of

pytestmark = pytest.mark.anyio


class Maker:
    """Creates consumers, unless it waits for a leader."""

    def __init__(self) -> None:
        self.leads = asyncio.Event()
        self.leads.set()
        self.asked = 0
        self._create = ConsumerReader._create

    async def __call__(self, reader: ConsumerReader, position: int) -> int:
        self.asked += 1
        await self.leads.wait()
        return await self._create(reader, position)


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Maker:
    made = Maker()

    async def create(reader: ConsumerReader, position: int) -> int:
        return await made(reader, position)

    monkeypatch.setattr(ConsumerReader, "_create", create)
    return made


@contextlib.asynccontextmanager
async def without_consumer(
    bare: Connection, maker: Maker, wakeup: asyncio.Event
) -> AsyncGenerator[ConsumerReader, None]:
    """A reader that read 20 messages, and whose consumer is lost while nothing makes another."""
    await fill(bare, 20)
    async with ConsumerReader.on(bare, STREAM, 0, wakeup=wakeup) as reader:
        assert await read_to(reader, wakeup, 20) == list(range(1, 21))
        asked = maker.asked
        maker.leads.clear()
        for name in (await bare.api(f"CONSUMER.NAMES.{STREAM}"))["consumers"]:
            await bare.api(f"CONSUMER.DELETE.{STREAM}.{name}")
        await until(lambda: maker.asked > asked, 60)
        yield reader


async def require_nothing(reader: ConsumerReader) -> None:
    """Within a second, in which what is there would be read."""
    await asyncio.sleep(1)
    assert reader.take(100) == []


async def test_messages_arrive_once_each_before_and_after_there_is_a_consumer(
    bare: Connection, maker: Maker
) -> None:
    wakeup = asyncio.Event()
    async with without_consumer(bare, maker, wakeup) as reader:
        await fill(bare, 30, boot="b2")
        meanwhile = await read_to(reader, wakeup, 50)
        asked = maker.asked
        maker.leads.set()
        await fill(bare, 10, boot="b3")
        after = await read_to(reader, wakeup, 60)

    assert meanwhile + after == list(range(21, 61))
    assert maker.asked == asked, "the consumer that was being made is the one that is used"


async def test_slow_taking_buffers_little(bare: Connection, maker: Maker) -> None:
    wakeup = asyncio.Event()
    async with without_consumer(bare, maker, wakeup) as reader:
        await fill(bare, 9000, boot="b2")
        await until(lambda: len(reader) > 2500, 60)
        await asyncio.sleep(1)  # in which more would be read

        assert len(reader) <= 5000
        assert await read_to(reader, wakeup, 9020) == list(range(21, 9021))


async def test_a_hole_of_the_copy_is_neither_skipped_nor_reported_without_a_leader(
    bare: Connection, maker: Maker
) -> None:
    wakeup = asyncio.Event()
    async with without_consumer(bare, maker, wakeup) as reader:
        await fill(bare, 20, boot="b2")
        await bare.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 30})
        await read_to(reader, wakeup, 29)
        await require_nothing(reader)
        maker.leads.set()

        with pytest.raises(StreamGap) as caught:
            await read_to(reader, wakeup, 40)

    assert (caught.value.wanted, caught.value.first) == (30, 31)


async def test_another_stream_is_not_read_on(bare: Connection, maker: Maker) -> None:
    wakeup = asyncio.Event()
    async with without_consumer(bare, maker, wakeup) as reader:
        await bare.api(f"STREAM.DELETE.{STREAM}")
        await make_stream(bare)
        await fill(bare, 40, boot="b2")
        await require_nothing(reader)
        maker.leads.set()

        with pytest.raises(StreamReplaced):
            await read_to(reader, wakeup, 40)


async def test_a_batch_begins_at_the_sequence_and_counts_what_follows(bare: Connection) -> None:
    await fill(bare, 20)

    found = await batch_from(bare, STREAM, 18)

    assert [(record.sequence, pending) for record, pending in found] == [(18, 2), (19, 1), (20, 0)]
    assert await batch_from(bare, STREAM, 21) == []


async def test_a_cancellation_that_meets_the_end_of_a_batch_counts(
    bare: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that lost it would read on for ever, and its component could not end."""
    found_in = direct.found_in

    def found_and_cancelled(headers: bytes) -> direct.Found | None:
        answer = found_in(headers)
        if answer is None:
            asyncio.get_running_loop().call_soon(reading.cancel)
        return answer

    await fill(bare, 20)
    monkeypatch.setattr(direct, "found_in", found_and_cancelled)
    reading = asyncio.create_task(batch_from(bare, STREAM, 18))
    await asyncio.wait([reading], timeout=60)

    assert reading.cancelled()


@pytest.mark.slow
async def test_what_one_server_alone_holds_is_read_while_there_is_no_leader(
    tmp_path: Path,
) -> None:
    wakeup = asyncio.Event()
    async with asyncio.timeout(60), running_cluster(tmp_path) as servers:
        async with connected(servers["n0"]) as connection:
            await ensure(connection, CLUSTER, replicas=3)
            await fill(connection, 100)
            created = (await state_of(connection, STREAM)).created
        async with connected(servers["n0"]) as connection:
            while len(copied := await batch_from(connection, STREAM, 50)) < 51:
                await asyncio.sleep(0.1)
            for name in ("n1", "n2"):
                servers[name].kill()
                await servers[name].wait()
            digest = digest_of(copied[0][0])
            async with ConsumerReader.on(
                connection, STREAM, 50, created, wakeup, digest=digest
            ) as reader:
                assert await read_to(reader, wakeup, 100) == list(range(51, 101))
