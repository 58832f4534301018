"""A broker that answers what no broker should: a client ends in time, and holds a bounded size."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from bus_kit import until
from joulie_bus.errors import Unreachable
from joulie_bus.jetstream import connection as connecting
from joulie_bus.jetstream import nats_internals
from joulie_bus.jetstream.connection import Address, Connection

pytestmark = pytest.mark.anyio
INFO = (
    b'INFO {"server_id":"x","version":"2.12.0","proto":1,"max_payload":1048576,"headers":true}\r\n'
)
OPEN_S = 2.0
MOST_S = 15.0  # on a busy machine
BOUND = 1 << 20
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def endless(writer: asyncio.StreamWriter, begin: bytes, part: bytes) -> None:
    writer.write(begin)
    while True:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)


async def trickling_info(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"INFO {")
    while True:
        writer.write(b" ")
        await asyncio.sleep(0.05)


async def endless_info(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await endless(writer, b"INFO {", b" " * 0x10000)


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def deep_info(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    depth = 25_000  # of a line that the client reads
    writer.write(b"INFO " + b"[" * depth + b"]" * depth + b"\r\n")
    await asyncio.sleep(MOST_S)


async def no_json(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"INFO {{{\r\n")
    await asyncio.sleep(MOST_S)


BEFORE_IT_IS_OPEN = (trickling_info, endless_info, silent, deep_info, no_json)


@contextlib.asynccontextmanager
async def broker(serve: Serve) -> AsyncGenerator[Address, None]:
    async def until_it_is_closed(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(until_it_is_closed, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Address(url=f"nats://127.0.0.1:{port}")
    finally:
        server.close()


@pytest.mark.parametrize("serve", BEFORE_IT_IS_OPEN, ids=lambda serve: serve.__name__)
async def test_a_connection_to_a_hostile_broker_is_given_up_in_time(serve: Serve) -> None:
    async with broker(serve) as address, asyncio.timeout(MOST_S):
        with pytest.raises(Unreachable):
            await Connection.open(address, "test", OPEN_S)


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (b"MSG x 1 4000000000\r\n", b"y" * 0x10000),
        (b"HMSG x 1 12 4000000000\r\n", b"y" * 0x10000),
        (b"", b"y" * 0x10000),
        (b"MSG ", b"y" * 0x10000),
        (b"INFO " + b"[" * 200_000 + b"]" * 200_000 + b"\r\n", b""),
        (b"INFO {{{\r\n", b""),
    ],
    ids=["message", "headers", "no line", "no end of a line", "deep", "no JSON"],
)
async def test_a_client_holds_a_bounded_size_of_what_a_broker_sends_and_connects_again(
    begin: bytes, part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_internals, "LARGEST", BOUND)
    monkeypatch.setattr(connecting, "CLOSE_TIMEOUT_S", 0.2)
    opened, held = [0], [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        opened[0] += 1
        await endless(writer, begin, part)

    async with broker(serve) as address:
        connection = await Connection.open(address, "test", MOST_S)
        client = connection._client

        async def watch() -> None:
            while True:
                held[0] = max(held[0], client.held_bytes)
                await asyncio.sleep(0)

        async with asyncio.timeout(MOST_S):
            watching = asyncio.create_task(watch())
            await until(lambda: opened[0] >= 2)
            watching.cancel()
        await connection.close()

    assert held[0] <= BOUND + 0x40000
