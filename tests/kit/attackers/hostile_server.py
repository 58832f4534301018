"""HTTP servers that answer clients of ours with what no server should: raw sockets on loopback.

Each answer goes on until the client closes the connection, or the server ends.
"""

import contextlib
import functools
import socket
import zlib
from collections.abc import Callable, Generator, Iterator

from hostile_listener import PAUSE_S, HostileListener

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
DEEP = 200_000
Answer = Callable[["HostileServer"], Iterator[bytes | float]]  # a float is a pause in seconds


def trickling_head(_: "HostileServer") -> Iterator[bytes | float]:
    yield b"HTTP/1.1 200 OK\r\nX: "
    while True:
        yield b"y"
        yield PAUSE_S


def interim_answers(_: "HostileServer") -> Iterator[bytes | float]:
    while True:
        yield b"HTTP/1.1 100 Continue\r\n\r\n"
        yield PAUSE_S / 10


def trickling_body(_: "HostileServer") -> Iterator[bytes | float]:
    yield OK + b"Content-Length: 60000\r\n\r\n"
    while True:
        yield b" "
        yield PAUSE_S


def trickling_to_the_end(_: "HostileServer") -> Iterator[bytes | float]:
    """Without a length: the end of the connection is that of the body."""
    yield OK + b"Connection: close\r\n\r\n"
    while True:
        yield b" "
        yield PAUSE_S


def trickling_trailers(_: "HostileServer") -> Iterator[bytes | float]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    while True:
        yield b"X: y\r\n"
        yield PAUSE_S


def endless_body(_: "HostileServer") -> Iterator[bytes | float]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n"
    while True:
        yield CHUNK


def endless_head(_: "HostileServer") -> Iterator[bytes | float]:
    yield b"HTTP/1.1 200 OK\r\nX: "
    while True:
        yield b"y" * 0x10000


@functools.cache
def bomb() -> bytes:
    """256 MiB of zeros in 256 KiB."""
    deflate = zlib.compressobj(1, wbits=31)  # in pieces, so that the test itself stays small
    parts = [deflate.compress(bytes(1 << 20)) for _ in range(256)]
    return b"".join([*parts, deflate.flush()])


def compressed(_: "HostileServer") -> Iterator[bytes | float]:
    head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb())
    yield OK + head + bomb()


def deep(_: "HostileServer") -> Iterator[bytes | float]:
    body = b'{"x":' + b"[" * DEEP + b"]" * DEEP + b"}"
    yield OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


def elsewhere(server: "HostileServer") -> Iterator[bytes | float]:
    """To another host, which counts its requests."""
    location = f"Location: {server.other}/secret\r\nContent-Length: 0\r\n\r\n"
    yield b"HTTP/1.1 307 Temporary Redirect\r\n" + location.encode()


def silent(_: "HostileServer") -> Iterator[bytes | float]:
    while True:
        yield PAUSE_S


EVERY: tuple[Answer, ...] = (
    *(trickling_head, interim_answers, trickling_body, trickling_to_the_end, trickling_trailers),
    *(endless_body, endless_head, compressed, deep, elsewhere, silent),
)


class HostileServer(HostileListener):
    def __init__(self, answer: Answer, other: str) -> None:
        self.other = other
        self._answer = answer
        if answer is compressed:
            bomb()  # a client's seconds are not spent on it
        super().__init__()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(1)
            connection.recv(0x10000)
            for part in self._answer(self):
                if self._ended.is_set():
                    return
                if isinstance(part, bytes):
                    connection.sendall(part)
                else:
                    self._ended.wait(part)


@contextlib.contextmanager
def hostile(answer: Answer) -> Generator[tuple[HostileServer, HostileServer], None, None]:
    """The server, and the other one to which it sends its clients."""
    other = HostileServer(silent, "")
    server = HostileServer(answer, other.url)
    try:
        yield server, other
    finally:
        server.end()
        other.end()
