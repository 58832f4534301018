"""Which clients may call the webhook, and what they may hold: connections, bytes and time.

Not here: what is answered (`webhook`).
In: connections and requests. Out: the same, or a refusal.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from aiohttp import web

from joulie_bus.core.certificate_names import is_client
from joulie_bus.runtime import metrics

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Limits(NamedTuple):
    """An API server waits 2 s for an answer, and keeps a few connections."""

    connections: int = 128
    body: int = 8 * 1024 * 1024  # two pods of 1.5 MiB, and the objects of the request
    bodies: int = 32 * 1024 * 1024  # of all requests together
    request_s: float = 5.0  # from the first byte of a request to its answer
    idle_s: float = 120.0  # longer than an API server's own 90 s, so that it closes first


class ClientLimits:
    """The connections of one listener."""

    def __init__(self, limits: Limits, client_names: frozenset[str] | None = None) -> None:
        """`client_names`: None if no certificate is required, empty for any of the authority."""
        self.limits = limits
        self._client_names = client_names
        self._guests: dict[asyncio.BaseTransport, _Guest] = {}
        self._bodies = 0

    def guarded(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        return _Guest(self, inner)

    def admits(self, transport: asyncio.BaseTransport, guest: "_Guest") -> bool:
        if len(self._guests) >= self.limits.connections:
            metrics.ADMISSION_REFUSED.labels(reason="connections").inc()
            return False
        self._guests[transport] = guest
        return True

    def left(self, transport: asyncio.BaseTransport) -> None:
        self._guests.pop(transport, None)

    def answering(self, handler: Handler) -> Handler:
        """`handler` for callers that may ask, within the budget of bodies."""

        async def answered(request: web.Request) -> web.StreamResponse:
            if refused := self._refusal_of(request):
                return refused
            size = request.content_length or 0
            self._bodies += size
            try:
                return await handler(request)
            finally:
                self._bodies -= size

        return answered

    def _refusal_of(self, request: web.Request) -> web.Response | None:
        if not self._is_known(request):
            why = "only the API server may ask: its client certificate is missing or another one"
            return _refused(403, "certificate", why)
        size = request.content_length
        if size is None:
            return _refused(411, "length", "a review has a Content-Length")
        if size > self.limits.body:
            return _refused(413, "size", f"a review has {self.limits.body} bytes at most")
        if self._bodies + size > self.limits.bodies:
            why = f"requests that are being read have {self.limits.bodies} bytes, and may not more"
            return _refused(503, "memory", why, {"Retry-After": "1"})
        return None

    def _is_known(self, request: web.Request) -> bool:
        if self._client_names is None:
            return True
        transport = request.transport
        peer = transport.get_extra_info("peercert") if transport is not None else None
        return is_client(peer, self._client_names)

    @web.middleware
    async def ends(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """After the answer a connection may be idle."""
        try:
            return await handler(request)
        finally:
            if request.transport is not None and (guest := self._guests.get(request.transport)):
                guest.rest()


class _Guest(asyncio.Protocol):
    """One connection: passes all on to the HTTP server, and ends when its time is over."""

    def __init__(self, clients: ClientLimits, inner: asyncio.Protocol) -> None:
        self._clients, self._inner = clients, inner
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_idle = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(transport)
        if self._clients.admits(transport, self):
            self._expire_in(self._clients.limits.request_s)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_idle:
            self._is_idle = False
            self._expire_in(self._clients.limits.request_s)
        self._inner.data_received(data)

    def rest(self) -> None:
        self._is_idle = True
        self._expire_in(self._clients.limits.idle_s)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._clients.left(self._transport)
        self._inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def _expire_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        assert self._transport is not None
        if not self._is_idle:
            metrics.ADMISSION_REFUSED.labels(reason="slow").inc()
        self._transport.abort()


def _refused(
    status: int, reason: str, why: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    metrics.ADMISSION_REFUSED.labels(reason=reason).inc()
    return web.Response(status=status, text=why + "\n", headers=headers)
