"""Calls the extender as kube-scheduler does: one keep-alive connection, the same headers."""

import asyncio
import contextlib
from typing import Any

import msgspec

CALL_TIMEOUT_S = 5.0  # kube-scheduler's own default
# Unreachable, timed out, cut off, or not HTTP with JSON (IndexError: no status line).
_FAILURES = (
    OSError,
    TimeoutError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,
    ValueError,
    IndexError,
)


class WebhookFailed(Exception):
    """Not 200, timed out or unreachable: kube-scheduler counts all three as failures."""


class Webhook:
    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, verb: str, body: dict[str, Any]) -> Any:
        """The decoded reply. There is no retry, as in kube-scheduler."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                status, reply = await self._exchange(verb, msgspec.json.encode(body))
            if status == 200:
                return msgspec.json.decode(reply)
        except _FAILURES as error:
            await self.close()
            raise WebhookFailed(f"{verb}: {str(error) or type(error).__name__}") from error
        await self.close()
        raise WebhookFailed(f"{verb}: code {status}")

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            with contextlib.suppress(OSError):
                await self._streams[1].wait_closed()
            self._streams = None

    async def _exchange(self, verb: str, body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = (
            f"POST /{verb} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"User-Agent: Go-http-client/1.1\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(answer[0].split()[1])
        fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in answer[1:])}
        reply = await reader.readexactly(int(fields.get("content-length", "0")))
        if fields.get("connection", "").lower() == "close":
            await self.close()
        return status, reply
