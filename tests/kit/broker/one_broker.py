"""Fixtures for folders whose modules share one broker: no test stops it there, and it takes a while
to start. A conftest imports what it wants by name."""

from collections.abc import AsyncGenerator

import pytest

from joulie_bus.broker.embedded import Embedded
from joulie_bus.jetstream.streams import ensure
from joulie_bus.streams.subjects import Stream
from joulie_bus.testing import CLUSTER, connected, running_broker


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Embedded, None]:
    async with running_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


async def emptied(broker: Embedded) -> Embedded:
    """With streams that are empty."""
    async with connected(broker) as connection:
        for stream in Stream:
            await connection.api(f"STREAM.DELETE.{stream}")
        await ensure(connection, CLUSTER)
    return broker
