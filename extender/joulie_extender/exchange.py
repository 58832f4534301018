"""One request and its reply, as everything above HTTP sees them."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple

import msgspec


class Limits(NamedTuple):
    body: int = 64 * 1024 * 1024
    head: int = 32 * 1024
    head_s: float = 10.0
    body_s: float = 30.0
    keep_alive_s: float = 120.0
    drain_s: float = 3.0


class Request(NamedTuple):
    method: str
    path: str
    body: bytes
    begun: float  # time.monotonic() at its first byte
    is_known: bool  # showed a certificate, or need not


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: bytes = b""  # whole lines
    media: bytes = b"application/json"


Handler = Callable[[Request], Reply | Awaitable[Reply]]


def refusal(status: int, why: str, headers: bytes = b"") -> Reply:
    """For what kube-scheduler never sends: says what was wrong."""
    return Reply(status, msgspec.json.encode({"error": why}), headers)


def rendered(reply: Reply, *, closes: bool, without_body: bool = False) -> bytes:
    phrase = HTTPStatus(reply.status).phrase.encode()
    parts = (
        b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n"
        % (reply.status, phrase, reply.media, len(reply.body)),
        reply.headers,
        b"Connection: close\r\n\r\n" if closes else b"\r\n",
        b"" if without_body else reply.body,
    )
    return b"".join(parts)
