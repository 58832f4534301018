"""The client of nats-py with eight changes. The only module that uses private names of nats-py.

Each private name is listed in `PRIVATE_NAMES` with the reason why the public API does not suffice.
`require_compatible` runs before each connection and names what an installed nats-py lacks. The
versions in `TESTED_VERSIONS` have all of them; pyproject.toml allows no other version.
"""

import asyncio
import importlib
import inspect
import random
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from nats.aio import transport
from nats.aio.client import DEFAULT_BUFFER_SIZE, Client
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport
from nats.errors import Error, ProtocolError
from nats.protocol.parser import Parser

from joulie_bus.errors import ClientIncompatible
from joulie_bus.jetstream.attempts import FIRST_S, Attempts

TESTED_VERSIONS = ">=2.16,<2.17"
LARGEST = 16 << 20  # bytes of a message with its headers; the broker takes 8 MiB
PING, PONG = b"PING\r\n", b"PONG\r\n"
EXPIRED = "authentication expired"  # of the time of a JWT, in an error of the broker

# Receives subject, reply subject (or headers) and data of a message. It must not wait or raise.
Receiver = Callable[[bytes, bytes, bytes], None]
ErrorCallback = Callable[[Exception], Any]


class PrivateName(NamedTuple):
    """`parameters` are those of a method, without `self`; None for an attribute."""

    owner: str
    name: str
    parameters: tuple[str, ...] | None
    why: str


PRIVATE_NAMES = (
    PrivateName(
        "Client",
        "_process_msg",
        ("sid", "subject", "reply", "data", "headers"),
        # Measured with benchmarks/bus.py and benchmarks/projector.py, two cores, Python 3.11.
        "A public callback gets each message through a queue, a task and a dict of its headers: "
        "reading takes 10-12 us of CPU per message instead of 5, and the projector folds "
        "20 to 30 % fewer facts per second.",
    ),
    PrivateName(
        "Subscription",
        "_id",
        None,
        "The number by which `_process_msg` names a subscription; no public property has it.",
    ),
    PrivateName(
        "Client",
        "_connect_to_server",
        ("s",),
        "A reconnection that fails leaves its socket open, and the next attempt forgets it: a "
        "broker that accepts connections and answers none exhausts the file descriptors. The "
        "public API has no hook between two attempts.",
    ),
    PrivateName(
        "Client",
        "_process_connect_init",
        (),
        "The timeout of an attempt and the pauses grow while attempts fail, and are reset by the "
        "first success. The public API has one value of each, for good.",
    ),
    PrivateName(
        "Client",
        "_process_pong",
        (),
        "A pong that comes after its flush was given up, as on a machine under load, raises an "
        "InvalidStateError, which ends the read loop: the connection reads nothing until it is "
        "found stale and made again. The public API has no hook before a pong.",
    ),
    PrivateName(
        "Client",
        "_process_err",
        ("err_msg",),
        "A connection whose credential is over is closed for good. The public API tells of it when "
        "the client can no longer be used.",
    ),
    PrivateName("Client", "_process_op_err", ("e",), "It makes that connection again instead."),
    PrivateName(
        "Client",
        "_server_pool",
        None,
        "The order in which servers are tried. `set_server_pool` loses the name by which the "
        "certificate of a discovered server is checked, and nats-py's own order may begin with the "
        "server that was left.",
    ),
    PrivateName("Client", "_current_server", None, "The server to put last in that order."),
    PrivateName("Client", "_pongs", None, "The flushes that wait for the next pongs, in order."),
    PrivateName(
        "Client",
        "_ps",
        None,
        "The parser keeps what a broker sends until a message is whole, whatever its size, and an "
        "error of its JSON ends the read loop. The public API has no bound.",
    ),
    PrivateName(
        "Client",
        "_transport",
        None,
        "The socket to close in `_connect_to_server`, and after a close() that finds the client "
        "closed already and therefore leaves the newest socket open.",
    ),
)


def require_compatible() -> None:
    """Raises ClientIncompatible if the installed nats-py lacks a private name."""
    if lacking := missing({"Client": Client(), "Subscription": Subscription(None)}):
        raise ClientIncompatible(version("nats-py"), TESTED_VERSIONS, lacking)


def missing(owners: Mapping[str, object]) -> list[str]:
    """The private names that the owners lack or that have other parameters."""
    return [
        f"{private.owner}.{private.name}"
        for private in PRIVATE_NAMES
        if not _is_as_known(getattr(owners[private.owner], private.name, _ABSENT), private)
    ]


_ABSENT = object()


def _is_as_known(found: object, private: PrivateName) -> bool:
    if found is _ABSENT or private.parameters is None:
        return found is not _ABSENT
    return callable(found) and tuple(inspect.signature(found).parameters) == private.parameters


class _Transport(TcpTransport):
    """A socket that stays closed if connecting is cancelled, and survives a lost connection."""

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: float | None) -> None:
        # Before Python 3.12 a `wait_for` with a timeout can lose the socket; without one it cannot.
        async with asyncio.timeout(connect_timeout):
            await super().connect(uri, buffer_size, None)  # type: ignore[arg-type]

    async def readline(self) -> bytes:
        """What nats-py reads until it is connected: the INFO of the broker, and the answer to its
        ping. It takes any line but an error for the answer, even the end of the connection, and the
        ping that the broker sends after two seconds while it still asks who the client is.
        """
        line = PING
        while line == PING:
            try:
                line = await super().readline()  # type: ignore[no-untyped-call]
            except ValueError as error:  # a line without an end
                raise ConnectionResetError(f"the broker sent no line: {error}") from error
            if line == PING:
                self.write(PONG)  # type: ignore[no-untyped-call]
        if not line:
            raise ConnectionResetError("the broker closed the connection")
        return line

    def writelines(self, payload: list[bytes]) -> None:
        # asyncio's own raises a TypeError on a connection that was just lost (Python 3.13.0).
        self.write(b"".join(payload))  # type: ignore[no-untyped-call]


class _Parser(Parser):
    """Raises ProtocolError, after which nats-py connects again, for what has no end."""

    async def parse(self, data: bytes = b"") -> None:
        try:
            await super().parse(data)
        except (ValueError, RecursionError) as error:  # of the JSON of an INFO
            raise ProtocolError(f"nats: {type(error).__name__} in what the broker sent") from error
        if max(self.needed, len(self.buf)) > LARGEST:
            self.reset()
            raise ProtocolError(f"nats: the broker sent more than {LARGEST} bytes as one message")


class JoulieClient(Client):
    """Dispatches messages to receivers without a queue, and closes every socket it opened."""

    def __init__(self, on_error: ErrorCallback, *, one_of_many: bool = False) -> None:
        super().__init__()
        self._ps = _Parser(self)
        self._on_error = on_error
        self._attempts = Attempts(one_of_many=one_of_many)
        self._receivers: dict[int, Receiver] = {}  # by the number of the subscription
        self._with_headers: set[int] = set()

    def dispatch(
        self, subscription: Subscription, receiver: Receiver, with_headers: bool = False
    ) -> None:
        """From now on messages go to `receiver`; only statuses go to the callback.

        `with_headers` statuses go to it too, and it gets the headers in place of the reply subject.
        """
        self._receivers[subscription._id] = receiver
        if with_headers:
            self._with_headers.add(subscription._id)

    def stop_dispatching(self, subscription: Subscription) -> None:
        self._receivers.pop(subscription._id, None)
        self._with_headers.discard(subscription._id)

    def order_servers(self) -> None:
        """To be called after a lost connection: other servers first, in an order by chance, so that
        the clients of one that died do not all go to the same one."""
        random.shuffle(self._server_pool)
        self._server_pool.sort(key=lambda server: server is self._current_server)

    @property
    def held_bytes(self) -> int:
        """Of messages that are not whole yet."""
        return len(self._ps.buf)

    def close_socket(self) -> None:
        """Closes the socket that close() leaves open if the client counts as closed already."""
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        # A status has headers and no reply subject; its headers have to be parsed.
        has_headers = sid in self._with_headers
        receiver = self._receivers.get(sid) if reply or has_headers or not headers else None
        if receiver is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            receiver(subject, headers or b"" if has_headers else reply, data)
        except Exception as error:  # raised here, it would end the read loop of the connection
            await self._on_error(error)

    async def _process_err(self, err_msg: str) -> None:
        if EXPIRED in err_msg.lower():
            await self._process_op_err(Error(f"nats: {err_msg}"))
        else:
            await super()._process_err(err_msg)

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():  # its flush was given up
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except TimeoutError:
            self._attempts.ran_out()
            raise
        self._attempts.succeeded()

    async def _connect_to_server(self, s: Any) -> None:
        self.close_socket()
        patience_s, pause_s = self._attempts.begin()
        self.options |= {"connect_timeout": patience_s, "reconnect_time_wait": pause_s}
        if s.uri.scheme in ("ws", "wss"):
            setattr(transport, "aiohttp", importlib.import_module("aiohttp"))  # noqa: B010
            await super()._connect_to_server(s)
            return
        s.last_attempt = time.monotonic()
        self._transport = _Transport()  # type: ignore[no-untyped-call]
        await self._transport.connect(s.uri, DEFAULT_BUFFER_SIZE, FIRST_S)
