"""A broker with one stream that may be trimmed and removed, as ours may not; filled and read."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from bus_kit import bare_broker, connected, power, producer
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.ordered import OrderedReader
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from one_broker import NO_STORE, allowing

STREAM = Stream.TEL


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncGenerator[Connection, None]:
    async with bare_broker(tmp_path / "broker") as broker, connected(broker) as opened:
        await make_stream(opened)
        yield opened


async def make_stream(connection: Connection) -> None:
    config: dict[str, Any] = {"name": STREAM, "subjects": ["joulie.tel.>"], "storage": "file"}
    config["allow_direct"] = True
    async with asyncio.timeout(60):
        while True:
            with allowing(NO_STORE):
                await connection.api(f"STREAM.CREATE.{STREAM}", config)
                return
            await asyncio.sleep(0.05)


async def fill(connection: Connection, count: int, boot: str = "b1") -> None:
    says = producer(boot=boot)
    async with Publisher.on(connection) as publisher:
        await publisher.publish([says.stamp(power("n1", watts)) for watts in range(count)])


async def read_to(
    reader: OrderedReader, wakeup: asyncio.Event, last: int, limit: int = 100
) -> list[int]:
    """Sequences up to `last`; raises what the reader raises."""
    found: list[Record] = []
    async with asyncio.timeout(60):
        while not found or found[-1].sequence < last:
            found += reader.take(limit)
            if not len(reader):
                await wait_and_clear(wakeup, 0.1)
    return [record.sequence for record in found]
