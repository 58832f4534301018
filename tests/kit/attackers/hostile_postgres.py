"""Programs in the place of a PostgreSQL server: the wire protocol as no server should speak it.

https://www.postgresql.org/docs/current/protocol-message-formats.html describes the messages.
"""

import contextlib
import socket
import struct
from collections.abc import Callable, Generator, Iterator

from hostile_listener import PAUSE_S, HostileListener

AUTHENTICATED = b"R" + struct.pack(">II", 8, 0)
READY = b"Z" + struct.pack(">I", 5) + b"I"
NO_TLS = b"N"
SECRET = "hunter2-hunter2"  # the password in the URL of the database
Answer = Callable[[bytes], Iterator[bytes | float]]  # to each message; a float is a pause


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


def error(text: str) -> bytes:
    fields = (b"SFATAL", b"VFATAL", b"C28P01", b"M" + text.encode())
    return message(b"E", b"\0".join(fields) + b"\0\0")


ROW = message(b"D", struct.pack(">HI", 1, 1000) + b"x" * 1000)
COLUMN = message(
    b"T", struct.pack(">H", 1) + b"a\0" + struct.pack(">IHIHIH", 0, 0, 25, 65535, 0, 0)
)
# Of the extended protocol: parsed and bound.
BOUND = message(b"1", b"") + message(b"2", b"") + COLUMN


def silent(_: bytes) -> Iterator[bytes | float]:
    yield 60.0


def hangs_up(_: bytes) -> Iterator[bytes | float]:
    yield b""


def other_protocol(_: bytes) -> Iterator[bytes | float]:
    yield b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


def trickled(asked: bytes) -> Iterator[bytes | float]:
    for byte in AUTHENTICATED + message(b"S", b"a\0" + b"b" * 10_000 + b"\0"):
        yield bytes([byte])
        yield PAUSE_S


def endless_notices(_: bytes) -> Iterator[bytes | float]:
    yield AUTHENTICATED
    while True:
        yield message(b"N", b"SNOTICE\0MYou will wait for ever\0\0") * 100


def endless_settings(_: bytes) -> Iterator[bytes | float]:
    yield AUTHENTICATED
    number = 0
    while True:
        yield b"".join(message(b"S", b"s%d\0%s\0" % (number + n, b"x" * 1000)) for n in range(100))
        number += 100


def huge_error(_: bytes) -> Iterator[bytes | float]:
    yield error("no " * 5_000_000)


def error_with_the_password(_: bytes) -> Iterator[bytes | float]:
    yield error(f"password authentication failed\nfor {SECRET}\x1b[2J")


def huge_message(_: bytes) -> Iterator[bytes | float]:
    yield b"R\x7f\xff\xff\xff"
    while True:
        yield b"x" * 65536


def then_silent(asked: bytes) -> Iterator[bytes | float]:
    yield AUTHENTICATED + READY if is_start(asked) else 60.0


def then_hangs_up(asked: bytes) -> Iterator[bytes | float]:
    yield AUTHENTICATED + READY if is_start(asked) else b""


def then_trickled(asked: bytes) -> Iterator[bytes | float]:
    if is_start(asked):
        yield AUTHENTICATED + READY
        return
    yield BOUND
    for byte in ROW * 1000:
        yield bytes([byte])
        yield PAUSE_S


def then_endless_rows(asked: bytes) -> Iterator[bytes | float]:
    if is_start(asked):
        yield AUTHENTICATED + READY
        return
    yield BOUND
    while True:
        yield ROW * 100


def is_start(asked: bytes) -> bool:
    return asked[4:8] == struct.pack(">I", 196608)


AT_THE_START = (
    *(silent, hangs_up, other_protocol, trickled, endless_notices, endless_settings),
    *(huge_error, error_with_the_password, huge_message),
)
LATER = (then_silent, then_hangs_up, then_trickled, then_endless_rows)


class HostilePostgres(HostileListener):
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        super().__init__()

    @property
    def url(self) -> str:
        return f"postgresql://joulie:{SECRET}@{self.address}/joulie"

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(1)
            while not self._ended.is_set():
                asked = self._asked(connection)
                if asked is None:
                    return
                if asked[4:8] in (struct.pack(">I", 80877103), struct.pack(">I", 80877104)):
                    connection.sendall(NO_TLS)
                elif not self._answered(connection, asked):
                    return

    def _asked(self, connection: socket.socket) -> bytes | None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                return connection.recv(0x10000) or None
        return None

    def _answered(self, connection: socket.socket, asked: bytes) -> bool:
        """Whether the connection stays open."""
        for part in self._answer(asked):
            if self._ended.is_set() or part == b"":
                return False
            if isinstance(part, bytes):
                connection.sendall(part)
            else:
                self._ended.wait(part)
        return True


@contextlib.contextmanager
def hostile_postgres(answer: Answer) -> Generator[HostilePostgres]:
    server = HostilePostgres(answer)
    try:
        yield server
    finally:
        server.end()
