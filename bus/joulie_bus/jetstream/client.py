"""nats-py's client, with what we do otherwise. Everything here rests on parts of it that it calls
its own; the tests of the reader and the connection show that they are still as we know them.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from nats.aio.client import DEFAULT_BUFFER_SIZE, Client
from nats.aio.transport import TcpTransport

# Of a message: subject, reply subject and data. It must neither wait nor raise.
Heard = Callable[[bytes, bytes, bytes], None]


class _Transport(TcpTransport):
    """Loses no socket when it is given up while connecting, as `wait_for` does before 3.12."""

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
        async with asyncio.timeout(connect_timeout):
            reader, writer = await asyncio.open_connection(
                uri.hostname, uri.port, limit=buffer_size
            )
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer

    def writelines(self, payload: list[bytes]) -> None:
        # asyncio's own may fall over a connection that was just lost (3.13.0: a TypeError).
        self.write(b"".join(payload))  # type: ignore[no-untyped-call]


class JoulieClient(Client):
    """nats-py's own, and what it does not do: it hears quickly, and closes what it opened."""

    def __init__(self) -> None:
        super().__init__()
        self.hearers: dict[int, Heard] = {}  # by the number of the subscription

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        """What is pulled, told or acknowledged needs no queue, no task and no dict of its headers.

        Together they take longer than most of what is done with it. A status has nothing but
        headers, and goes the long way.
        """
        heard = self.hearers.get(sid) if reply or not headers else None
        if heard is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            heard(subject, reply, data)
        except Exception as error:  # in here it would end the connection's read loop
            await self._error_cb(error)

    async def _connect_to_server(self, s: Any) -> None:
        """Closes the socket of an attempt that failed, which nats-py forgets at every retry."""
        if transport := getattr(self, "_transport", None):
            transport.close()
        if s.uri.scheme in ("ws", "wss"):
            await super()._connect_to_server(s)
            return
        s.last_attempt = time.monotonic()
        self._transport = _Transport()  # type: ignore[no-untyped-call]
        timeout_s: int = self.options["connect_timeout"]
        await self._transport.connect(s.uri, DEFAULT_BUFFER_SIZE, timeout_s)
