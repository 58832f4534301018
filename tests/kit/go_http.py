"""Go's HTTP client as kube-scheduler uses it: one POST, one timeout, no retry."""

import asyncio
import contextlib
import gzip
import ssl
from typing import NamedTuple

IDLE_S = 90.0  # idle connections are closed after this time
_KEEP_METHOD = (307, 308)
_TO_GET = (301, 302, 303)
# Unreachable, timed out, interrupted, or not HTTP (IndexError: no status line).
FAILURES = (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError, IndexError)


class CallFailed(Exception):
    """A failed call; the message appears in the pod's condition."""


class Response(NamedTuple):
    status: int
    fields: dict[str, str]
    body: bytes


class Client:
    """A client of one extender."""

    def __init__(
        self, host: str, port: int, prefix: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self._host, self._port, self._prefix, self._tls = host, port, prefix.rstrip("/"), tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._idle_since = 0.0
        self.dialled = 0
        self.last = Response(0, {}, b"")

    async def post(self, verb: str, body: bytes, timeout_s: float) -> bytes:
        """The body of a 200 response; anything else is a failed call."""
        url = f"http://{self._host}:{self._port}{self._prefix}/{verb}"
        try:
            async with asyncio.timeout(timeout_s):
                self.last = await self._followed("POST", f"{self._prefix}/{verb}", body)
                reply = _unpacked(self.last)
        except TimeoutError as error:
            await self.close()
            raise CallFailed(f'Post "{url}": context deadline exceeded') from error
        except FAILURES as error:
            await self.close()
            raise CallFailed(f'Post "{url}": {error or type(error).__name__}') from error
        if self.last.status != 200:
            await self.close()
            raise CallFailed(f"failed {verb} with extender at URL {url}, code {self.last.status}")
        return reply

    async def close(self) -> None:
        if self._streams is not None:
            writer, self._streams = self._streams[1], None
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _followed(self, method: str, path: str, body: bytes) -> Response:
        for _ in range(10):
            found = await self._exchange(method, path, body)
            if found.status not in (*_KEEP_METHOD, *_TO_GET):
                return found
            if found.status in _TO_GET:
                method, body = "GET", b""
            path = found.fields["location"]
        raise ValueError("stopped after 10 redirects")

    async def _exchange(self, method: str, path: str, body: bytes) -> Response:
        reader, writer = await self._connected()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"User-Agent: Go-http-client/1.1\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        status, fields = await _head(reader)
        while status == 100:
            status, fields = await _head(reader)
        reply = await _body(reader, fields)
        self._idle_since = asyncio.get_running_loop().time()
        if fields.get("connection", "").lower() == "close":
            await self.close()
        return Response(status, fields, reply)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        now = asyncio.get_running_loop().time()
        if self._streams is not None and now - self._idle_since > IDLE_S:
            await self.close()
        if self._streams is None:
            self.dialled += 1
            self._streams = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, limit=2**26
            )
        return self._streams


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return int(lines[0].split()[1]), {key.lower(): value.strip() for key, _, value in pairs}


async def _body(reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
    """A body shorter than announced is truncated: "unexpected EOF" in the decoder."""
    if "content-length" in fields:
        try:
            return await reader.readexactly(int(fields["content-length"]))
        except asyncio.IncompleteReadError as error:
            return error.partial
    return await reader.read()


def _unpacked(response: Response) -> bytes:
    zipped = response.fields.get("content-encoding") == "gzip"
    return gzip.decompress(response.body) if zipped else response.body
