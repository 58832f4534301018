"""A relay between a client and a server whose connections a test can cut."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit


class Relay:
    """`limits` are the bytes after which the next connections are cut; later ones stay."""

    def __init__(self, host: str, port: int, limits: list[int]) -> None:
        self._place = host, port
        self._limits = limits
        self._writers = set[asyncio.StreamWriter]()
        self.connections = 0
        self.url = ""

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        limit = self._limits.pop(0) if self._limits else None
        with contextlib.suppress(OSError):
            theirs, ours = await asyncio.open_connection(*self._place)
            self._writers |= {writer, ours}
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(_copied(reader, ours, None))
                    both.create_task(_copied(theirs, writer, limit))
            finally:
                self._writers -= {writer, ours}
                ours.transport.abort()
        writer.transport.abort()


async def _copied(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None
) -> None:
    """Until either side ends, or `limit` bytes have passed; then the other direction ends, too."""
    left = limit
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data if left is None else data[:left])
            await writer.drain()
            left = None if left is None else left - len(data)
            if left is not None and left <= 0:
                break
    if writer.can_write_eof():
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()
    raise ConnectionResetError  # ends the group of both directions


@contextlib.asynccontextmanager
async def relayed(url: str, limits: list[int] | None = None) -> AsyncGenerator[Relay, None]:
    """A relay to the server at this URL, at a URL of its own."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    relay = Relay(parts.hostname, parts.port, limits or [])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ExceptionGroup):
            await relay.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    relay.url = f"{parts.scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
        await server.wait_closed()
