"""Fixtures for folders whose modules share one broker: no test stops it there, and it takes a while
to start. A conftest imports what it wants by name."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator

import pytest

from bus_kit import CLUSTER, connected, running_broker
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import BrokerRefused
from joulie_bus.jetstream.streams import ensure
from joulie_bus.streams.subjects import Stream

NOT_FOUND = 10059
NO_STORE = 10049  # the files of a stream of the same name are not removed yet


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Embedded, None]:
    async with running_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


async def emptied(broker: Embedded) -> Embedded:
    """With streams that are empty. Old files may stay for a moment, also after a failed attempt."""
    async with asyncio.timeout(60), connected(broker) as connection:
        for stream in Stream:
            with allowing(NOT_FOUND):
                await connection.api(f"STREAM.DELETE.{stream}")
        while True:
            with allowing(NO_STORE):
                await ensure(connection, CLUSTER)
                return broker
            await asyncio.sleep(0.05)


@contextlib.contextmanager
def allowing(code: int) -> Generator[None, None, None]:
    """Suppresses a refusal with this code."""
    try:
        yield
    except BrokerRefused as refusal:
        if refusal.code != code:
            raise
