"""Where kube-scheduler comes in: listens, knows who is inside, and sees everybody out."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable

from joulie_bus.errors import PortTaken
from joulie_bus.logging import get_logger
from joulie_bus.settings import HostPort
from joulie_bus.tasks import background
from joulie_extender.connection import Connection
from joulie_extender.exchange import Handler, Limits, Reply, Request, refusal
from joulie_extender.tls import Certificates

SWEEP_S = 0.5  # how late a slow client may be noticed
log = get_logger("extender")


class Door:
    """Listens on one address, knows who is inside, and sees them out."""

    def __init__(self, handler: Handler, limits: Limits, certificates: Certificates | None) -> None:
        self._handler = handler
        self._certificates = certificates
        self._server: asyncio.Server | None = None
        self.limits = limits
        self.connections: set[Connection] = set()
        self.is_draining = False
        self.port = 0  # where it really listens; settings may leave it open

    def answer(self, request: Request) -> Reply | Awaitable[Reply]:
        try:
            reply = self._handler(request)
        except Exception:
            return _unforeseen(request)
        return reply if isinstance(reply, Reply) else self._later(reply, request)

    async def _later(self, coming: Awaitable[Reply], request: Request) -> Reply:
        try:
            return await coming
        except Exception:
            return _unforeseen(request)

    def knows(self, transport: asyncio.Transport) -> bool:
        wants = self._certificates is not None and self._certificates.wants_clients_own
        return not wants or bool(transport.get_extra_info("peercert"))

    async def open(self, listener: socket.socket) -> None:
        """Also once more, with other certificates: whoever is inside stays."""
        context: ssl.SSLContext | None = None
        if self._certificates is not None:
            context = self._certificates.context()
        before = self._server
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self), sock=listener.dup(), ssl=context
        )
        if before is not None:
            before.close()

    async def watch_certificates(self, listener: socket.socket) -> None:
        """For ever. A pair that cannot be used, such as a half-written one, changes nothing."""
        assert self._certificates is not None
        while True:
            await self._certificates.changed()
            try:
                await self.open(listener)
                log.info("certificates_reloaded")
            except OSError as error:
                log.error("certificates_not_reloaded", error=str(error), what="the old ones stay")

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = time.monotonic()
            for connection in list(self.connections):
                connection.cut(now)

    async def drain(self) -> None:
        """Each connection gets one last reply that says so; who asks nothing goes at the end."""
        self.is_draining = True
        deadline = time.monotonic() + self.limits.drain_s
        while self.connections and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()


def _unforeseen(request: Request) -> Reply:
    log.exception("not_answered", path=request.path)
    return refusal(500, "This should not have happened; the extender's log says more.")


@contextlib.asynccontextmanager
async def listening(
    handler: Handler,
    at: HostPort,
    limits: Limits = Limits(),  # noqa: B008
    certificates: Certificates | None = None,
) -> AsyncGenerator[Door, None]:
    door = Door(handler, limits, certificates)
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(_bound(at))
        door.port = listener.getsockname()[1]
        await door.open(listener)
        await stack.enter_async_context(background(door.sweep(), "sweep"))
        if certificates is not None:
            watch = door.watch_certificates(listener)
            await stack.enter_async_context(background(watch, "certificates"))
        try:
            yield door
        finally:
            await door.drain()


def _bound(at: HostPort) -> socket.socket:
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    try:
        return socket.create_server(at, family=family, backlog=1024)
    except OSError as error:
        raise PortTaken(str(at), error.strerror or str(error)) from error
