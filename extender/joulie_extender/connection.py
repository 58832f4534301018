"""One client's connection: HTTP/1.1 as far as kube-scheduler speaks it, and a little patience.

One write per reply, so that no half of it waits for an acknowledgement. Idle connections live
longer than kube-scheduler's own 90 s, and the last reply on one says `Connection: close`: whoever
closes without a word costs a pod. Slow clients are cut, large requests refused unread.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable
from enum import IntEnum
from http import HTTPStatus
from typing import NamedTuple, Protocol, cast

import httptools

from joulie_bus.runtime import metrics
from joulie_bus.runtime.http_head import Field, Head, Refusal
from joulie_extender.budget import Budget, Share
from joulie_extender.exchange import Body, Limits, Reply, Request, refusal, rendered
from joulie_extender.known_head import KnownHead

READ = 64 * 1024  # bytes at a time
LARGE = 1024 * 1024  # a body larger than this is read to its place; it is copied nowhere
_ROOM = bytes(256 * 1024)  # what the place of a large body grows by, as its bytes arrive
LINGER_S = 2.0  # for a refused client to read why, before its unsent bytes meet a closed socket
FORMS = 4  # of heads; kube-scheduler has one for each verb
PIPELINED = 16  # requests read ahead of their turn; kube-scheduler sends none


class House(Protocol):
    """What a connection asks of whom it belongs to."""

    limits: Limits
    budget: Budget
    arriving: "set[Connection]"  # in the handshake of TLS
    connections: "set[Connection]"
    is_draining: bool

    def answer(self, request: Request) -> Reply | Awaitable[Reply]: ...

    def knows(self, transport: asyncio.Transport) -> bool: ...

    def refusal_of(self, head: Head, is_known: bool) -> Refusal | None: ...


class _Phase(IntEnum):
    IDLE = 0
    HEAD = 1
    BODY = 2
    BUSY = 3
    OVER = 4  # refused: whatever still comes is thrown away


def _patience(limits: Limits) -> tuple[float, ...]:
    """Seconds that a connection may stay in each phase."""
    return (limits.keep_alive_s, limits.head_s, limits.body_s, math.inf, LINGER_S)


class _Waiting(NamedTuple):
    request: Request
    keeps: bool


class Connection(asyncio.BufferedProtocol):
    """One client. Requests are answered one at a time, in their order."""

    _transport: asyncio.Transport

    def __init__(self, house: House) -> None:
        self._house = house
        self._patience = _patience(house.limits)
        self._parser = httptools.HttpRequestParser(self)
        self._space = memoryview(bytearray(READ))
        self._forms: deque[KnownHead] = deque(maxlen=FORMS)
        self._waiting: deque[_Waiting] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._whole = b""  # what is being parsed, if it may be one request
        self._is_known = True
        self._local = ""
        self._share = Share(house.budget)
        self._farewell = b""  # a refusal, once what came before it is answered
        self._is_clogged = False  # it does not take what we write
        self._is_full = False  # it writes ahead of what we answer
        self.written_by = math.inf  # until then the client has to take what was written
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
        self.deadline = time.monotonic() + self._patience[phase]

    # --- called by the loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is none by class
        self._is_known = self._house.knows(self._transport)
        self._local = (transport.get_extra_info("sockname") or ("",))[0]
        if not self._is_known:
            self.deadline = time.monotonic() + self._house.limits.head_s
        self._house.arriving.discard(self)
        self._house.connections.add(self)
        metrics.CONNECTIONS.inc()

    def connection_lost(self, exc: Exception | None) -> None:
        self._share.give_all()
        self._house.connections.discard(self)
        metrics.CONNECTIONS.dec()

    def eof_received(self) -> bool:
        """A client that has said all it had to say may still wait for the answer."""
        return self._answering is not None

    def pause_writing(self) -> None:
        self._is_clogged = True
        self.written_by = time.monotonic() + self._house.limits.body_s
        self._share.unsent(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_clogged = False
        self.written_by = math.inf
        self._share.unsent(0)
        self._answer_next()

    def get_buffer(self, sizehint: int) -> memoryview:
        large = self._large
        if large is not None and self._size == len(large):
            self._grow(large)
        return self._space if self._large is None else memoryview(self._large)[self._size :]

    def _grow(self, large: bytearray) -> None:
        """By little, and only when it is full: the head may promise what never comes."""
        more = min(len(_ROOM), self._length - len(large))
        if self._hold(more):
            large += _ROOM if more == len(_ROOM) else bytes(more)

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is None:
            self._hear(self._space[:nbytes])
            return
        self._size += nbytes
        if self._size == self._length:
            self._parser = httptools.HttpRequestParser(self)  # the old one has not seen this body
            self._read(self._method, self._path, self._large)

    def _hold(self, count: int) -> bool:
        """False if that would be more than all connections may hold: the request is refused."""
        if self._share.read(count):
            return True
        why = (
            f"Requests and replies of all connections may hold {self._house.budget.limit} bytes, "
            "and do. Nothing was answered; try again."
        )
        self._refuse(503, why)
        return False

    def _hear(self, data: memoryview) -> None:
        if self._phase is not _Phase.IDLE:
            self._feed(data)
            return
        whole = bytes(data)
        for form in self._forms:
            body = form.body_of(whole)
            if body is not None and len(body) <= self._house.limits.body:
                self._begun = time.monotonic()
                if self._hold(len(body)):
                    self._read(form.method, form.path, body)
                return
        self._whole = whole
        self._feed(data)
        self._whole = b""

    def _feed(self, data: memoryview) -> None:
        if self._phase is _Phase.OVER:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered as what it also is: a request of HTTP/1.1
        except httptools.HttpParserError as error:
            self._refuse(400, f"This is not HTTP/1.1: {error}.")
        if self._phase is _Phase.HEAD:
            self._head_bytes += len(data)
            if self._head_bytes > self._house.limits.head:
                self._refuse(431, f"The head is larger than {self._house.limits.head} bytes.")
        elif self._phase is _Phase.BODY and self._length > LARGE:
            self._make_room()

    def _make_room(self) -> None:
        """Between two feeds, so that the parser is done with what it had."""
        self._large = bytearray(self._body)
        self._body = b""

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        if self._phase is not _Phase.OVER:
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
                if self._length > self._house.limits.body:
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
        refused = self._house.refusal_of(head, self._is_known)
        if refused is not None:
            self._refuse(refused.status, refused.why, refused.reason)
            return
        self._keeps = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        self._enter(_Phase.BODY)
        if self._expects:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """In as many pieces as the client likes: one buffer, because each object costs more."""
        if self._phase is not _Phase.BODY or not self._hold(len(body)):
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
            self._learn(body)
        self._read(self._method, self._path, body)

    def _learn(self, body: bytes) -> None:
        form = KnownHead.of(self._whole, body, self._method, self._path)
        if form is not None:
            self._forms.append(form)

    @property
    def _path(self) -> str:
        return self._url.partition(b"?")[0].decode("latin-1")

    def _read(self, method: str, path: str, body: Body) -> None:
        request = Request(method, path, body, self._begun)
        self._share.hand_over()
        self._waiting.append(_Waiting(request, self._keeps))
        self._begin()
        self._enter(_Phase.BUSY)
        if len(self._waiting) > PIPELINED and not self._is_full:
            self._is_full = True
            self._transport.pause_reading()
        self._answer_next()

    # --- answering ---

    def _answer_next(self) -> None:
        while self._waiting and self._answering is None and not self._is_clogged:
            request, keeps = self._waiting.popleft()
            reply = self._house.answer(request)
            if isinstance(reply, Reply):
                self._write(reply, request, keeps)
            else:
                self._answering = asyncio.ensure_future(self._answer_later(reply, request, keeps))
        if self._farewell and self._answering is None and not self._waiting:
            self._take_leave()

    async def _answer_later(self, coming: Awaitable[Reply], request: Request, keeps: bool) -> None:
        reply = await coming
        self._answering = None
        self._write(reply, request, keeps)
        self._answer_next()

    def _write(self, reply: Reply, request: Request, keeps: bool) -> None:
        self._share.give(len(request.body))
        if self._transport.is_closing():
            return
        closes = not keeps or self._house.is_draining
        if not closes and not self._waiting and self._phase is _Phase.BUSY:
            self._enter(_Phase.IDLE)
        if self._is_full and not self._waiting:
            self._is_full = False
            self._transport.resume_reading()
        self._transport.write(rendered(reply, closes=closes, without_body=request.method == "HEAD"))
        if closes:
            self._enter(_Phase.OVER)
            self.deadline = time.monotonic() + self._house.limits.body_s
            self._waiting.clear()
            self._farewell = b""
            self._transport.close()

    def _refuse_large(self) -> None:
        limit = self._house.limits.body
        self._refuse(413, f"The body is larger than {limit} bytes.")

    def _refuse(self, status: int, why: str, reason: str = "") -> None:
        """The last reply; requests before it are answered first, in their order."""
        if self._phase is _Phase.OVER:
            return
        reason = reason or HTTPStatus(status).name.lower()
        metrics.REQUESTS_REFUSED.labels(reason=reason).inc()
        self._enter(_Phase.OVER)
        self._share.give_unread()
        self._large, self._body = None, b""
        self._farewell = rendered(refusal(status, why), closes=True)
        if self._answering is None and not self._waiting:
            self._take_leave()
        else:
            self.deadline = time.monotonic() + self._house.limits.body_s

    def _take_leave(self) -> None:
        self._transport.write(self._farewell)
        self._farewell = b""
        self.deadline = time.monotonic() + LINGER_S
        if self._transport.can_write_eof():
            self._transport.write_eof()

    # --- called by the door ---

    def cut(self, now: float) -> None:
        """If it is over its time: a slow client is told, if it can still be told anything."""
        if self.written_by <= now:
            metrics.REQUESTS_REFUSED.labels(reason="not_read").inc()
            self._transport.abort()
        elif self.deadline <= now and self._phase in (_Phase.HEAD, _Phase.BODY):
            self._refuse(408, f"The {self._phase.name.lower()} of this request took too long.")
        elif self.deadline <= now:
            self._transport.abort()

    def close(self) -> None:
        self._transport.close()
