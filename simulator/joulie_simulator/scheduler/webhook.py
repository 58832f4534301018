"""Calls the extender as kube-scheduler does: one keep-alive connection, the same headers."""

from typing import Any

import aiohttp
import msgspec

CALL_TIMEOUT_S = 5.0  # kube-scheduler's own default
HEADERS = {
    "User-Agent": "Go-http-client/1.1",
    "Content-Type": "application/json",
    "Accept-Encoding": "gzip",
}
MAX_HEADER = 1 << 20  # bytes, as Go's client
MAX_ERROR = 200  # characters; an error may quote the reply
OK = 200


class WebhookFailed(Exception):
    """Not 200, timed out or unreachable: kube-scheduler counts all three as failures."""


class Webhook:
    def __init__(self, host: str, port: int) -> None:
        self._url = f"http://{host}:{port}"
        self._session: aiohttp.ClientSession | None = None

    async def call(self, verb: str, body: dict[str, Any]) -> Any:
        """The decoded reply. There is no retry, as in kube-scheduler."""
        try:
            status, reply = await self._post(verb, msgspec.json.encode(body))
            if status == OK:
                return msgspec.json.decode(reply)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            await self.close()
            why = f"{type(error).__name__} {error}".strip()[:MAX_ERROR]
            raise WebhookFailed(f"{verb}: {why}") from error
        raise WebhookFailed(f"{verb}: code {status}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, verb: str, body: bytes) -> tuple[int, bytes]:
        if self._session is None:  # a session belongs to the running event loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=1),
                timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_S),
                headers=HEADERS,
                skip_auto_headers=("Accept",),
                max_field_size=MAX_HEADER,
            )
        async with self._session.post(f"{self._url}/{verb}", data=body) as response:
            return response.status, await response.read()
