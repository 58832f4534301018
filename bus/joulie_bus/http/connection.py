"""One client connection: the part of HTTP/1.1 that Kubernetes uses, with time and size limits.

Each reply is one write, so that no part of it waits for an acknowledgement. Idle connections stay
open longer than kube-scheduler's own 90 s, and the last reply on a connection carries
`Connection: close`: a connection that closes without it costs kube-scheduler a pod. Slow clients
are disconnected; large requests are refused unread.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from enum import IntEnum
from http import HTTPStatus
from typing import NamedTuple, Protocol, cast

import httptools

from joulie_bus.core.http_head import Field, Head, RefusedHead
from joulie_bus.http.byte_budget import ByteBudget, ConnectionBudget
from joulie_bus.http.exchange import Body, Limits, Reply, Request, refusal, rendered
from joulie_bus.http.known_head import KnownHead
from joulie_bus.http.tally import Tally

READ = 64 * 1024  # bytes at a time
LARGE = 1024 * 1024  # a larger body is read directly into its buffer and not copied
_GROWTH = bytes(256 * 1024)  # growth step of the buffer of a large body
LINGER_S = 2.0  # for a refused client to read the reply before the socket is closed
KNOWN_HEADS = 4  # of heads; kube-scheduler has one for each verb
PIPELINED = 16  # requests read ahead of their turn; kube-scheduler sends none


class Server(Protocol):
    """What a connection requires of its server."""

    limits: Limits
    tally: Tally
    budget: ByteBudget
    arriving: "set[Connection]"  # in the handshake of TLS
    connections: "set[Connection]"
    is_draining: bool

    def answer(self, request: Request) -> Reply | Awaitable[Reply]: ...

    def in_next_turn(self, what: Callable[[], None]) -> None: ...

    def is_authenticated(self, transport: asyncio.Transport) -> bool: ...

    def refusal_of(self, head: Head, is_authenticated: bool) -> RefusedHead | None: ...


class _Phase(IntEnum):
    IDLE = 0
    HEAD = 1
    BODY = 2
    BUSY = 3
    CLOSING = 4  # refused: further bytes are discarded


def _timeouts(limits: Limits) -> tuple[float, ...]:
    """Seconds that a connection may stay in each phase."""
    return (limits.keep_alive_s, limits.head_s, limits.body_s, math.inf, LINGER_S)


class _Waiting(NamedTuple):
    request: Request
    keeps: bool


class Connection(asyncio.BufferedProtocol):
    """One client. Requests are answered one at a time, in order."""

    _transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self._server = server
        self._timeouts = _timeouts(server.limits)
        self._parser = httptools.HttpRequestParser(self)
        self._buffer = memoryview(bytearray(READ))
        self._known_heads: deque[KnownHead] = deque(maxlen=KNOWN_HEADS)
        self._waiting: deque[_Waiting] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._whole = b""  # what is being parsed, if it may be one request
        self._is_authenticated = True
        self._local = ""
        self._budget = ConnectionBudget(server.budget)
        self._final_reply = b""  # a refusal, sent after the replies before it
        self._has_turn = False  # the next waiting request is answered in the next turn of the loop
        self._is_write_paused = False  # the client does not read replies
        self._is_read_paused = False  # the client has pipelined too many requests
        self.written_by = math.inf  # deadline for the client to read what was written
        self._enter(_Phase.IDLE)
        self._begin()

    def _begin(self) -> None:
        self._url = b""
        self._method = ""
        self._head_bytes = 0
        self._fields: list[Field] = []
        self._size = 0
        self._length = 0  # of the body, if the head says so
        self._body: Body = b""
        self._large: bytearray | None = None
        self._expects = False
        self._keeps = True
        self._begun = 0.0

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self.deadline = time.monotonic() + self._timeouts[phase]

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is none by class
        self._is_authenticated = self._server.is_authenticated(self._transport)
        self._local = (transport.get_extra_info("sockname") or ("",))[0]
        if not self._is_authenticated:
            self.deadline = time.monotonic() + self._server.limits.head_s
        self._server.arriving.discard(self)
        self._server.connections.add(self)
        self._server.tally.connections.inc()

    def connection_lost(self, exc: Exception | None) -> None:
        self._budget.give_all()
        self._server.connections.discard(self)
        self._server.tally.connections.dec()

    def eof_received(self) -> bool:
        """A client that half-closes the connection may still wait for its reply."""
        return self._answering is not None

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self.written_by = time.monotonic() + self._server.limits.body_s
        self._budget.unsent(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self.written_by = math.inf
        self._budget.unsent(0)
        self._answer_next()

    def get_buffer(self, sizehint: int) -> memoryview:
        large = self._large
        if large is not None and self._size == len(large):
            self._grow(large)
        return self._buffer if self._large is None else memoryview(self._large)[self._size :]

    def _grow(self, large: bytearray) -> None:
        """Grows the buffer in steps as bytes arrive, because a head may announce bytes that never
        come.
        """
        more = min(len(_GROWTH), self._length - len(large))
        if self._reserve(more):
            large += _GROWTH if more == len(_GROWTH) else bytes(more)

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is None:
            self._receive(self._buffer[:nbytes])
            return
        self._size += nbytes
        if self._size == self._length:
            self._parser = httptools.HttpRequestParser(self)  # the old one has not seen this body
            self._read(self._method, self._path, self._large)
            self._answer_next()

    def _reserve(self, count: int) -> bool:
        """Reserves bytes of the shared budget; refuses the request and returns False if there are
        none.
        """
        if self._budget.read(count):
            return True
        why = (
            f"Requests and replies of all connections may hold {self._server.budget.limit} bytes, "
            "and do. Nothing was answered; try again."
        )
        self._refuse(503, why)
        return False

    def _receive(self, data: memoryview) -> None:
        if self._phase is not _Phase.IDLE:
            self._feed(data)
            return
        whole = bytes(data)
        for known_head in self._known_heads:
            body = known_head.body_of(whole)
            if body is not None and len(body) <= self._server.limits.body:
                self._begun = time.monotonic()
                if self._reserve(len(body)):
                    self._read(known_head.method, known_head.path, body)
                    self._answer_next()
                return
        self._whole = whole
        self._feed(data)
        self._whole = b""

    def _feed(self, data: memoryview) -> None:
        if self._phase is _Phase.CLOSING:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered as a plain HTTP/1.1 request
        except httptools.HttpParserError as error:
            self._refuse(400, f"This is not HTTP/1.1: {error}.")
        if self._phase is _Phase.HEAD:
            self._head_bytes += len(data)
            if self._head_bytes > self._server.limits.head:
                self._refuse(431, f"The head is larger than {self._server.limits.head} bytes.")
        elif self._phase is _Phase.BODY and self._length > LARGE:
            self._make_room()
        self._answer_next()

    def _make_room(self) -> None:
        """Runs between two feeds, when the parser has released its data."""
        self._large = bytearray(self._body)
        self._body = b""

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        if self._phase is not _Phase.CLOSING:
            self._begin()
            self._begun = time.monotonic()
            self._enter(_Phase.HEAD)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))
        match name.lower():
            case b"content-length":
                self._length = int(value)
                if self._length > self._server.limits.body:
                    self._refuse_large()
            case b"expect":
                self._expects = value.lower() == b"100-continue"
            case _:
                pass

    def on_headers_complete(self) -> None:
        if self._phase is not _Phase.HEAD:
            return
        self._method = self._parser.get_method().decode()
        head = Head(self._method, self._path, self._fields, self._local)
        refused = self._server.refusal_of(head, self._is_authenticated)
        if refused is not None:
            self._refuse(refused.status, refused.why, refused.reason)
            return
        self._keeps = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        self._enter(_Phase.BODY)
        if self._expects:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Appends to one buffer: a body in many pieces would cost an object for each."""
        if self._phase is not _Phase.BODY or not self._reserve(len(body)):
            return
        self._size += len(body)
        if not self._body:
            self._body = body
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += body

    def on_message_complete(self) -> None:
        if self._phase is not _Phase.BODY:
            return
        body = bytes(self._body)
        if self._whole and not self._expects:
            self._remember_head(body)
        self._read(self._method, self._path, body)

    def _remember_head(self, body: bytes) -> None:
        known_head = KnownHead.of(self._whole, body, self._method, self._path)
        if known_head is not None:
            self._known_heads.append(known_head)

    @property
    def _path(self) -> str:
        return self._url.partition(b"?")[0].decode("latin-1")

    def _read(self, method: str, path: str, body: Body) -> None:
        request = Request(method, path, body, self._begun)
        self._budget.hand_over()
        self._waiting.append(_Waiting(request, self._keeps))
        self._begin()
        self._enter(_Phase.BUSY)
        if len(self._waiting) > PIPELINED and not self._is_read_paused:
            self._is_read_paused = True
            self._transport.pause_reading()

    # --- answering ---

    def _answer_next(self) -> None:
        """Answers one request. The next one has to wait for the next turn of the loop, so that
        pipelined requests do not delay other connections."""
        if self._has_turn:
            return
        if self._is_free and self._waiting:
            request, keeps = self._waiting.popleft()
            reply = self._server.answer(request)
            if isinstance(reply, Reply):
                self._write(reply, request, keeps)
            else:
                self._answering = asyncio.ensure_future(self._answer_later(reply, request, keeps))
        if self._is_free and self._waiting:
            self._has_turn = True
            self._server.in_next_turn(self._take_turn)
        if self._final_reply and self._answering is None and not self._waiting:
            self._send_final_reply()

    @property
    def _is_free(self) -> bool:
        return self._answering is None and not self._is_write_paused

    def _take_turn(self) -> None:
        self._has_turn = False
        self._answer_next()

    async def _answer_later(self, coming: Awaitable[Reply], request: Request, keeps: bool) -> None:
        reply = await coming
        self._answering = None
        self._write(reply, request, keeps)
        self._answer_next()

    def _write(self, reply: Reply, request: Request, keeps: bool) -> None:
        self._budget.give(len(request.body))
        if self._transport.is_closing():
            return
        closes = not keeps or self._server.is_draining
        if not closes and not self._waiting and self._phase is _Phase.BUSY:
            self._enter(_Phase.IDLE)
        if self._is_read_paused and not self._waiting:
            self._is_read_paused = False
            self._transport.resume_reading()
        self._transport.write(rendered(reply, closes=closes, without_body=request.method == "HEAD"))
        if closes:
            self._enter(_Phase.CLOSING)
            self.deadline = time.monotonic() + self._server.limits.body_s
            self._waiting.clear()
            self._final_reply = b""
            self._transport.close()

    def _refuse_large(self) -> None:
        limit = self._server.limits.body
        self._refuse(413, f"The body is larger than {limit} bytes.")

    def _refuse(self, status: int, why: str, reason: str = "") -> None:
        """Writes a final reply after those of the requests before it, and reads no further."""
        if self._phase is _Phase.CLOSING:
            return
        reason = reason or HTTPStatus(status).name.lower()
        self._server.tally.refuse(reason)
        self._enter(_Phase.CLOSING)
        self._budget.give_unread()
        self._large, self._body = None, b""
        self._final_reply = rendered(refusal(status, why), closes=True)
        if self._answering is None and not self._waiting:
            self._send_final_reply()
        else:
            self.deadline = time.monotonic() + self._server.limits.body_s

    def _send_final_reply(self) -> None:
        self._transport.write(self._final_reply)
        self._final_reply = b""
        self.deadline = time.monotonic() + LINGER_S
        if self._transport.can_write_eof():
            self._transport.write_eof()

    # --- called by the server ---

    def close_if_overdue(self, now: float) -> None:
        """Called by the server's sweep: replies 408 to a slow request, or aborts the connection."""
        if self.written_by <= now:
            self._server.tally.refuse("not_read")
            self._transport.abort()
        elif self.deadline <= now and self._phase in (_Phase.HEAD, _Phase.BODY):
            self._refuse(408, f"The {self._phase.name.lower()} of this request took too long.")
        elif self.deadline <= now:
            self._transport.abort()

    def close(self) -> None:
        self._transport.close()
