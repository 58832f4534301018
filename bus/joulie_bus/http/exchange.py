"""One HTTP request and its reply, as the layers above the connection see them."""

from collections.abc import Awaitable, Callable
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

import msgspec

Body = bytes | bytearray  # a bytearray if it is large: the buffer that it was read into


class Limits(NamedTuple):
    body: int = 64 * 1024 * 1024
    buffers: int = 128 * 1024 * 1024  # of all connections together
    connections: int = 256
    head: int = 32 * 1024
    head_s: float = 10.0
    body_s: float = 30.0
    keep_alive_s: float = 120.0
    drain_s: float = 3.0


class Request(NamedTuple):
    method: str
    path: str
    body: Body
    begun: float  # time.monotonic() at its first byte


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: bytes = b""  # whole lines
    media: bytes = b"application/json"


Handler = Callable[[Request], Reply | Awaitable[Reply]]


def refusal(status: int, why: str, headers: bytes = b"") -> Reply:
    """An error reply, with the reason as JSON, to a request that kube-scheduler never sends."""
    return Reply(status, msgspec.json.encode({"error": why}), headers)


def rendered(reply: Reply, *, closes: bool, without_body: bool = False) -> bytes:
    parts = (
        _beginning(reply.status, reply.media),
        b"Content-Length: %d\r\n" % len(reply.body),
        reply.headers,
        b"Connection: close\r\n\r\n" if closes else b"\r\n",
        b"" if without_body else reply.body,
    )
    return b"".join(parts)


@lru_cache(maxsize=64)
def _beginning(status: int, media: bytes) -> bytes:
    phrase = HTTPStatus(status).phrase.encode()
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n" % (status, phrase, media)
