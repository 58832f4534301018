"""HTTP requests to a console: its address, the token, certificates, and bounds.

One question at a time goes over a connection, from a thread. A command asks a few of them, and the
library of the stream would cost it more than all that it asks.
"""

import asyncio
import contextlib
import http.client
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from joulie_answers.schema.responses import Problem
from joulie_bus.core.undecodable import UNDECODABLE
from joulie_bus.errors import ConsoleNotReached, ConsoleRefused
from joulie_bus.runtime.http_deadline import within
from joulie_bus.runtime.system_errors import reason_of

LARGEST = 64 << 20  # of an answer; the map of 5,000 nodes is smaller than 1 MiB
LARGEST_PROBLEM = 64 << 10
CHUNK = 1 << 16
T = TypeVar("T")
FAILURES = (http.client.HTTPException, TimeoutError, OSError)


class ConsoleConnection:
    """Reads the token again for each request, so that it can be replaced. Follows no redirect."""

    def __init__(self, url: str, token_file: str | Path, ca_file: str | Path) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ConsoleNotReached("the console", "its URL is not https://HOST or http://HOST.")
        self.url = url.rstrip("/")
        self._token_file = token_file
        self.tls = self._trusting(ca_file)
        self._unused: list[http.client.HTTPConnection] = []

    def _trusting(self, ca_file: str | Path) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=ca_file or None)
        except OSError as error:  # ssl.SSLError is one
            why = f"{ca_file} holds no certificates: {error.strerror or error}."
            raise ConsoleNotReached(self.url, why) from error

    async def close(self) -> None:
        while self._unused:
            self._unused.pop().close()

    async def json(
        self, path: str, parameters: Mapping[str, str], timeout_s: float, body: str | None = None
    ) -> bytes:
        """With a body it is a POST."""
        target = f"{urlsplit(self.url).path}{path}"
        if parameters:
            target += f"?{urlencode(parameters)}"
        headers = self.authorization()
        sent = None if body is None else body.encode()
        reply = await asyncio.to_thread(self._ask, Asked(target, headers, sent), timeout_s)
        if reply.status != 200:
            raise ConsoleRefused(self.url, path, reply.status, detail_of(reply))
        return reply.body

    def _ask(self, asked: "Asked", timeout_s: float) -> "Reply":
        """A console closes a connection that is not used for a while: then a new one asks again."""
        until = time.monotonic() + timeout_s
        try:
            if self._unused:
                with contextlib.suppress(ConnectionError, http.client.RemoteDisconnected):
                    return self._ask_over(self._unused.pop(), asked, until)
            return self._ask_over(self._connection(timeout_s), asked, until)
        except FAILURES as error:
            raise ConsoleNotReached(self.url, why_of(error)) from error

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.netloc, timeout=timeout_s)
        return http.client.HTTPSConnection(parts.netloc, timeout=timeout_s, context=self.tls)

    def _ask_over(
        self, connection: http.client.HTTPConnection, asked: "Asked", until: float
    ) -> "Reply":
        method = "GET" if asked.body is None else "POST"
        try:
            asking = {**asked.headers, "Accept-Encoding": "identity"}
            if asked.body is not None:
                asking["Content-Type"] = "application/yaml"
            with within(connection, max(0.0, until - time.monotonic())):
                connection.request(method, asked.target, asked.body, asking)
                response = connection.getresponse()
                body = _body(response, LARGEST if response.status == 200 else LARGEST_PROBLEM)
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._unused.append(connection)
        return Reply(response.status, response.reason, body)

    def authorization(self) -> dict[str, str]:
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


class Asked(NamedTuple):
    target: str
    headers: Mapping[str, str]
    body: bytes | None  # of a POST


class Reply(msgspec.Struct, frozen=True):
    status: int
    reason: str | None
    body: bytes


def _body(response: http.client.HTTPResponse, most: int) -> bytes:
    body = bytearray()
    while chunk := response.read1(CHUNK):
        body += chunk
        if len(body) > most:
            raise http.client.HTTPException(f"it sent more than {most >> 10} KiB")
    if response.length:
        raise http.client.IncompleteRead(bytes(body), response.length)
    response.read()  # nothing is left; the connection can be used again
    return bytes(body)


def decoded(url: str, path: str, body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Raises ConsoleNotReached for an answer of a console of another version, or of no console."""
    try:
        return decoder.decode(body)
    except UNDECODABLE as error:
        why = f"what it answers to {path} is not what a console of this version answers: {error}"
        raise ConsoleNotReached(url, why) from error


def detail_of(reply: Reply) -> str:
    with contextlib.suppress(*UNDECODABLE):
        return msgspec.json.decode(reply.body, type=Problem).detail
    if 300 <= reply.status < 400:
        return "redirects are not followed."
    return f"{reply.reason or 'no reason given'}."


def why_of(error: BaseException) -> str:
    why = "" if isinstance(error, TimeoutError) else reason_of(error)
    return f"{why or 'no answer in time'}."
