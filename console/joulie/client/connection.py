"""HTTP requests to a console: its address, the token, certificates, and bounds."""

import contextlib
import ssl
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from joulie_answers.schema.responses import Problem
from joulie_bus.errors import ConsoleNotReached, ConsoleRefused, Undecodable

LARGEST = 64 << 20  # of an answer; the map of 5,000 nodes is smaller than 1 MiB
LARGEST_PROBLEM = 64 << 10
CONNECT_S = 10.0
T = TypeVar("T")
FAILURES = (aiohttp.ClientError, TimeoutError, OSError)


class ConsoleConnection:
    """Reads the token again for each request, so that it can be replaced. Follows no redirect."""

    def __init__(self, url: str, token_file: str | Path, ca_file: str | Path) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ConsoleNotReached("the console", "its URL is not https://HOST or http://HOST.")
        self.url = url.rstrip("/")
        self._token_file = token_file
        self._tls = self._trusting(ca_file)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))

    def _trusting(self, ca_file: str | Path) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=ca_file or None)
        except OSError as error:  # ssl.SSLError is one
            why = f"{ca_file} holds no certificates: {error.strerror or error}."
            raise ConsoleNotReached(self.url, why) from error

    async def close(self) -> None:
        await self._session.close()

    async def json(self, path: str, parameters: Mapping[str, str], timeout_s: float) -> bytes:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self.opened(path, parameters, {}, timeout) as response:
            try:
                return await _bounded(response, LARGEST)
            except FAILURES as error:
                raise ConsoleNotReached(self.url, why_of(error)) from error

    @contextlib.asynccontextmanager
    async def opened(
        self,
        path: str,
        parameters: Mapping[str, str],
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """A response with status 200. Raises ConsoleRefused for another one."""
        try:
            response = await self._session.get(
                self.url + path,
                params=parameters,
                headers={**headers, **self._authorization()},
                ssl=self._tls,
                allow_redirects=False,
                timeout=timeout,
            )
        except FAILURES as error:
            raise ConsoleNotReached(self.url, why_of(error)) from error
        async with response:
            if response.status != 200:
                raise ConsoleRefused(self.url, path, response.status, await _detail(response))
            yield response

    def _authorization(self) -> dict[str, str]:
        if not self._token_file:
            return {}
        try:
            token = Path(self._token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise ConsoleNotReached(self.url, f"{self._token_file}: {why}.") from error
        if not token or not token.isascii() or not token.isprintable():
            raise ConsoleNotReached(self.url, f"{self._token_file} holds no line with a token.")
        return {"Authorization": f"Bearer {token}"}


def decoded(url: str, path: str, body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Raises Undecodable for an answer of a console of another version, or of no console."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"The answer to {path} of {url}", f"{error}") from error


async def _bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise aiohttp.ClientPayloadError(f"it sent more than {most >> 10} KiB")
    return bytes(body)


async def _detail(response: aiohttp.ClientResponse) -> str:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, *FAILURES):
        body = await _bounded(response, LARGEST_PROBLEM)
        return msgspec.json.decode(body, type=Problem).detail
    if 300 <= response.status < 400:
        return "redirects are not followed."
    return f"{response.reason or 'no reason given'}."


def why_of(error: BaseException) -> str:
    return f"{str(error) or 'no answer in time'}."
