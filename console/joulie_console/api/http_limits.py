"""uvicorn's HTTP protocol with limits on connections, on heads, and on their time."""

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from joulie_bus.runtime import metrics

REQUEST_S = 10.0  # from its first byte, or from the connection, to its last byte
HEAD_BYTES = 32 * 1024


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection if a request is not complete in time; uvicorn has no such limit."""

    _timer: asyncio.TimerHandle | None = None
    _is_in_head = True
    _head_bytes = 0
    _body_bytes = 0  # of the data at hand

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency:
            self._end(503, "connections")
            return
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._expect_request()
        self._body_bytes = 0
        super().data_received(data)
        if not self._is_in_head:
            self._head_bytes = 0
            return
        self._head_bytes += len(data) - self._body_bytes
        if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self._end(431, "request_header_fields_too_large")

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        self._stop_timer()
        super().on_message_complete()

    def _expect_request(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(REQUEST_S, self._end, 408, "request_timeout")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, status: int, reason: str) -> None:
        """Replies only where no response has begun: the client could not tell two apart."""
        self._stop_timer()
        metrics.CONSOLE_REFUSED.labels(reason=reason).inc()
        if getattr(self.cycle, "response_complete", True):  # there is no cycle before the first
            phrase = HTTPStatus(status).phrase
            head = f"HTTP/1.1 {status} {phrase}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            self.transport.write(head.encode())
        self.transport.close()
