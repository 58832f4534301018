"""The connection of a stream: the bytes of one response, as they arrive."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import aiohttp

from joulie.client.connection import (
    LARGEST_PROBLEM,
    ConsoleConnection,
    Reply,
    detail_of,
    why_of,
)
from joulie_bus.errors import ConsoleNotReached, ConsoleRefused

CONNECT_S = 10.0
SILENT_S = 45.0  # three heartbeats; then the connection is dead, whatever trickles in
PLAIN = {"Accept-Encoding": "identity"}
FAILURES = (aiohttp.ClientError, TimeoutError, OSError)


@contextlib.asynccontextmanager
async def chunks_of(
    connection: ConsoleConnection,
    path: str,
    parameters: Mapping[str, str],
    headers: Mapping[str, str],
) -> AsyncGenerator[AsyncIterator[bytes], None]:
    """Of a response with status 200. Raises ConsoleRefused for another one."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S)
    # What is compressed is not of a console, and may inflate without end.
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
        try:
            async with asyncio.timeout(SILENT_S):  # a head may trickle in
                response = await session.get(
                    connection.url + path,
                    params=parameters,
                    headers={**headers, **connection.authorization(), **PLAIN},
                    ssl=connection.tls,
                    allow_redirects=False,
                )
        except FAILURES as error:
            raise ConsoleNotReached(connection.url, why_of(error)) from error
        async with response:
            if response.status != 200:
                reply = Reply(response.status, response.reason, await _problem(response))
                raise ConsoleRefused(connection.url, path, reply.status, detail_of(reply))
            yield _chunks(connection, response)


async def _chunks(
    connection: ConsoleConnection, response: aiohttp.ClientResponse
) -> AsyncGenerator[bytes, None]:
    chunks = response.content.iter_any()
    try:
        while True:
            async with asyncio.timeout(SILENT_S):  # trailers may trickle in
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk
    except FAILURES as error:
        raise ConsoleNotReached(connection.url, why_of(error)) from error


async def _problem(response: aiohttp.ClientResponse) -> bytes:
    """Empty if it cannot be read."""
    with contextlib.suppress(*FAILURES):
        async with asyncio.timeout(CONNECT_S):
            return await response.content.read(LARGEST_PROBLEM)
    return b""
