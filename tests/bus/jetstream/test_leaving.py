"""A server that passes nothing on, as one that was cut from the leader of a stream."""

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import nats
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from bus_kit import CLUSTER, connected, power, producer
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import Unreachable
from joulie_bus.jetstream import connection as module
from joulie_bus.jetstream import unanswered
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import ensure
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from nats_trust import serving

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unanswered, "IN_VAIN_S", 0.2)
    monkeypatch.setattr(module, "IN_VAIN_S", 0.2)
    monkeypatch.setattr(module, "API_TIMEOUT_S", 0.3)


@contextlib.asynccontextmanager
async def beside_a_deaf_server(directory: Path) -> AsyncGenerator[Connection, None]:
    """A connection to a server where requests arrive and get no answer. Another one does answer."""
    answering = Embedded(directory / "answering")
    address = answering.address_of(Role.ADMIN)
    (directory / "deaf").mkdir()
    with serving(directory / "deaf", "") as deaf:
        sink = await nats.connect(deaf)
        await sink.subscribe(">")
        both = replace(address, url=f"{deaf},{address.url}")
        connection = await Connection.open(both, "test")  # the other one is not up yet
        await answering.start()
        try:
            async with connected(answering) as admin:
                await ensure(admin, CLUSTER)
            yield connection
        finally:
            await connection.close()
            await answering.stop()
            await sink.close()


async def test_what_is_published_is_stored_by_way_of_another_server(tmp_path: Path) -> None:
    async with beside_a_deaf_server(tmp_path) as connection:
        with capture_logs() as lines:
            async with JetStreamLog.over(connection) as bus:
                await bus.publish([producer().stamp(power("n", 200))])

                assert (await bus.state(Stream.TEL)).last == 1
    left = [line for line in lines if line["event"] == "server_left"]
    assert {line["why"] for line in left} == {"no acknowledgement"}


async def test_a_request_is_answered_by_another_server(tmp_path: Path) -> None:
    async with beside_a_deaf_server(tmp_path) as connection:
        while True:
            with contextlib.suppress(Unreachable):
                answer = await connection.api("INFO")
                break

    assert answer["streams"] == len(Stream)


async def test_the_only_server_is_not_left(tmp_path: Path) -> None:
    broker = Embedded(tmp_path)
    await broker.start()
    try:
        async with connected(broker) as connection:
            with capture_logs() as lines:
                connection.leave_server("a test")

            assert connection.is_connected
            assert lines == []
    finally:
        await broker.stop()
