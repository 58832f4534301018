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

from joulie_bus import metrics
from joulie_extender.exchange import Body, Limits, Reply, Request, refusal, rendered

READ = 64 * 1024  # bytes at a time
LARGE = 1024 * 1024  # a body larger than this is read to its place; it is copied nowhere
LINGER_S = 2.0  # for a refused client to read why, before its unsent bytes meet a closed socket
FORMS = 4  # of heads; kube-scheduler has one for each verb
DIGITS = 8  # of the length of a body that comes in one piece
_LENGTH = b"\r\nContent-Length: "  # on a line of its own, whatever other lines say
PIPELINED = 16  # requests read ahead of their turn; kube-scheduler sends none


class House(Protocol):
    """What a connection asks of whom it belongs to."""

    limits: Limits
    connections: "set[Connection]"
    is_draining: bool

    def answer(self, request: Request) -> Reply | Awaitable[Reply]: ...

    def knows(self, transport: asyncio.Transport) -> bool: ...


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


class _Form(NamedTuple):
    """The head of a request that came whole, in one piece. What comes with the same head, but for
    the length of its body, need not be parsed to be understood: it says what this one said.
    """

    before: bytes  # the digits of the length
    after: bytes
    method: str
    path: str

    @classmethod
    def of(cls, data: bytes, body: Body, method: str, path: str) -> "_Form | None":
        """None unless the data is one head with one length, and this body."""
        head = data[: len(data) - len(body)]
        before, named, rest = head.partition(_LENGTH)
        digits, _, after = rest.partition(b"\r\n")
        is_one = head.find(b"\r\n\r\n") == len(head) - 4
        if not (is_one and named and int(digits) == len(body)):
            return None
        return cls(before + named, b"\r\n" + after, method, path)

    def body_of(self, data: bytes) -> bytes | None:
        """None if this is not one whole request with this head."""
        if not data.startswith(self.before):
            return None
        at = len(self.before)
        end = data.find(b"\r", at, at + DIGITS)
        start = end + len(self.after)
        if end < 0 or not data.startswith(self.after, end) or not data[at:end].isdigit():
            return None
        return data[start:] if int(data[at:end]) == len(data) - start else None


class Connection(asyncio.BufferedProtocol):
    """One client. Requests are answered one at a time, in their order."""

    _transport: asyncio.Transport

    def __init__(self, house: House) -> None:
        self._house = house
        self._patience = _patience(house.limits)
        self._parser = httptools.HttpRequestParser(self)
        self._space = memoryview(bytearray(READ))
        self._forms: deque[_Form] = deque(maxlen=FORMS)
        self._waiting: deque[_Waiting] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._whole = b""  # what is being parsed, if it may be one request
        self._is_known = True
        self._is_clogged = False  # it does not take what we write
        self._is_full = False  # it writes ahead of what we answer
        self.written_by = math.inf  # until then the client has to take what was written
        self._enter(_Phase.IDLE)
        self._begin()

    def _begin(self) -> None:
        self._url = b""
        self._method = ""
        self._head_bytes = 0
        self._size = 0
        self._length = 0  # of the body, if the head says so
        self._parts: list[bytes] = []
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
        self._house.connections.add(self)
        metrics.CONNECTIONS.inc()

    def connection_lost(self, exc: Exception | None) -> None:
        self._house.connections.discard(self)
        metrics.CONNECTIONS.dec()

    def eof_received(self) -> bool:
        """A client that has said all it had to say may still wait for the answer."""
        return self._answering is not None

    def pause_writing(self) -> None:
        self._is_clogged = True
        self.written_by = time.monotonic() + self._house.limits.body_s

    def resume_writing(self) -> None:
        self._is_clogged = False
        self.written_by = math.inf
        self._answer_next()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._space if self._large is None else memoryview(self._large)[self._size :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is None:
            self._hear(self._space[:nbytes])
            return
        self._size += nbytes
        if self._size == self._length:
            self._parser = httptools.HttpRequestParser(self)  # the old one has not seen this body
            self._read(self._method, self._path, self._large)

    def _hear(self, data: memoryview) -> None:
        if self._phase is not _Phase.IDLE:
            self._feed(data)
            return
        whole = bytes(data)
        for form in self._forms:
            body = form.body_of(whole)
            if body is not None and len(body) <= self._house.limits.body:
                self._begun = time.monotonic()
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
        begun = b"".join(self._parts)
        self._parts.clear()
        self._large = bytearray(self._length)
        self._large[: len(begun)] = begun

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        if self._phase is not _Phase.OVER:
            self._begin()
            self._begun = time.monotonic()
            self._enter(_Phase.HEAD)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
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
        self._keeps = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        self._enter(_Phase.BODY)
        if self._expects:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self._phase is not _Phase.BODY:
            return
        self._size += len(body)
        if self._size > self._house.limits.body:
            self._refuse_large()
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._phase is not _Phase.BODY:
            return
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if self._whole and not self._expects:
            self._learn(body)
        self._read(self._method, self._path, body)

    def _learn(self, body: bytes) -> None:
        form = _Form.of(self._whole, body, self._method, self._path)
        if form is not None:
            self._forms.append(form)

    @property
    def _path(self) -> str:
        return self._url.partition(b"?")[0].decode("latin-1")

    def _read(self, method: str, path: str, body: Body) -> None:
        request = Request(method, path, body, self._begun, self._is_known)
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

    async def _answer_later(self, coming: Awaitable[Reply], request: Request, keeps: bool) -> None:
        reply = await coming
        self._answering = None
        self._write(reply, request, keeps)
        self._answer_next()

    def _write(self, reply: Reply, request: Request, keeps: bool) -> None:
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
            self._phase = _Phase.OVER
            self._waiting.clear()
            self._transport.close()

    def _refuse_large(self) -> None:
        limit = self._house.limits.body
        self._refuse(413, f"The body is larger than {limit} bytes (EXTENDER_BODY_LIMIT).")

    def _refuse(self, status: int, why: str) -> None:
        if self._phase is _Phase.OVER:
            return
        metrics.REQUESTS_REFUSED.labels(reason=HTTPStatus(status).name.lower()).inc()
        self._enter(_Phase.OVER)
        self._large = None
        self._transport.write(rendered(refusal(status, why), closes=True))
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
