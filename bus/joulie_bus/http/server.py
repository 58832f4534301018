"""The HTTP server: accepts connections, enforces limits, and drains them on shutdown."""

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from joulie_bus.core.http_head import Head, HeadRule, RefusedHead, refusal_of
from joulie_bus.errors import PortTaken
from joulie_bus.http.byte_budget import ByteBudget
from joulie_bus.http.certificates import Certificates
from joulie_bus.http.connection import Connection
from joulie_bus.http.exchange import Handler, Limits, Reply, Request, refusal, rendered
from joulie_bus.http.tally import EXTENDER, Tally
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.settings import HostPort
from joulie_bus.runtime.system_errors import reason_of
from joulie_bus.runtime.vital_tasks import VitalTask, living

SWEEP_S = 0.5  # how late a slow client may be noticed
LOG_INTERVAL_S = 60.0  # between two log lines about refusals of one reason
LOGGED_CHARS = 200  # characters of a path in the log
LOOPBACK_NAMES = HeadRule()
NO_CERTIFICATE = RefusedHead(
    403,
    "certificate",
    "Only clients with a certificate of the authority for clients (EXTENDER_TLS_CLIENT_CA_FILE, "
    "--client-ca) are answered here, and if names of clients are listed, only those.",
)
log = get_logger("http")


class HttpServer:
    """Listens on one address, tracks its connections, and drains them."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        certificates: Certificates | None,
        rule: HeadRule = LOOPBACK_NAMES,
        tally: Tally = EXTENDER,
    ) -> None:
        self.tally = tally
        tally.begin()
        self._handler = handler
        self._certificates = certificates
        self._rule = rule
        self._context = certificates.context() if certificates is not None else None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._is_shut = False
        self._logged: dict[str, float] = {}  # when a refusal was logged last, by its reason
        self.limits = limits
        self.budget = ByteBudget(limits.buffers)
        self.arriving: set[Connection] = set()
        self.connections: set[Connection] = set()
        self.is_draining = False
        self.port = 0  # the actual port; settings may give 0

    def answer(self, request: Request) -> Reply | Awaitable[Reply]:
        try:
            reply = self._handler(request)
        except Exception:
            return _internal_error(request)
        return reply if isinstance(reply, Reply) else self._later(reply, request)

    async def _later(self, coming: Awaitable[Reply], request: Request) -> Reply:
        try:
            return await coming
        except Exception:
            return _internal_error(request)

    def in_next_turn(self, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(what)

    def is_authenticated(self, transport: asyncio.Transport) -> bool:
        certificates = self._certificates
        return certificates is None or certificates.accepts(transport.get_extra_info("peercert"))

    def refusal_of(self, head: Head, is_authenticated: bool) -> RefusedHead | None:
        """None if the body of this request may be read."""
        found = None if is_authenticated or head.path in self._rule.probes else NO_CERTIFICATE
        found = found or refusal_of(head, self._rule)
        if found is not None:
            self._log(found, head)
        return found

    def _log(self, found: RefusedHead, head: Head) -> None:
        """Logs one line per minute and reason: clients can cause any number of refusals."""
        now = time.monotonic()
        if now - self._logged.get(found.reason, -math.inf) < LOG_INTERVAL_S:
            return
        self._logged[found.reason] = now
        log.warning(
            "request_refused",
            reason=found.reason,
            path=head.path[:LOGGED_CHARS],
            why=found.why[:LOGGED_CHARS],
        )

    async def accept(self, listener: socket.socket) -> None:
        """Runs until cancelled. A client in the TLS handshake counts as a connection."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.error("not_accepted", error=str(error), what=f"tries again in {SWEEP_S:g} s")
                await asyncio.sleep(SWEEP_S)
                continue
            if self._is_shut:
                client.close()
            elif len(self.connections) + len(self.arriving) >= self.limits.connections:
                self._reject(client)
            else:
                self._start(client)

    def _reject(self, client: socket.socket) -> None:
        self.tally.refuse("connections")
        with contextlib.suppress(OSError), client:
            if self._context is None:
                why = f"{self.limits.connections} connections are open, the most there may be."
                client.send(rendered(refusal(503, why), closes=True))

    def _start(self, client: socket.socket) -> None:
        connection = Connection(self)
        self.arriving.add(connection)
        task = asyncio.create_task(self._handshake(connection, client), name="handshake")
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, connection: Connection, client: socket.socket) -> None:
        """Returns once the client is connected; a client that does not finish the handshake never
        is.
        """
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                client,
                ssl=self._context,
                ssl_handshake_timeout=None if self._context is None else self.limits.head_s,
            )
        except OSError as error:  # TimeoutError and SSLError are such
            self.tally.refuse("handshake")
            log.debug("no_handshake", error=str(error) or type(error).__name__)
            client.close()
        finally:
            self.arriving.discard(connection)

    async def watch_certificates(self) -> None:
        """Runs until cancelled. A pair that cannot be loaded, such as a half-written one, changes
        nothing.

        A new pair applies to new connections; open connections stay.
        """
        assert self._certificates is not None
        while True:
            await self._certificates.changed()
            try:
                self._context = self._certificates.context()
                log.info("certificates_reloaded")
            except OSError as error:
                log.error("certificates_not_reloaded", error=str(error), what="the old ones stay")

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = time.monotonic()
            for connection in list(self.connections):
                connection.close_if_overdue(now)

    async def drain(self) -> None:
        """Each connection gets one last reply with `Connection: close`; idle ones are closed at the
        end.
        """
        self.is_draining = True
        deadline = time.monotonic() + self.limits.drain_s
        while self.connections and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        self._is_shut = True
        for handshake in list(self._handshakes):
            handshake.cancel()
        for connection in list(self.connections):
            connection.close()


def _internal_error(request: Request) -> Reply:
    log.exception("not_answered", path=request.path)
    return refusal(500, "The program failed; its log has the details.")


@contextlib.asynccontextmanager
async def listening(
    handler: Handler,
    at: HostPort,
    limits: Limits = Limits(),  # noqa: B008
    certificates: Certificates | None = None,
    rule: HeadRule = LOOPBACK_NAMES,
    tally: Tally = EXTENDER,
) -> AsyncGenerator[HttpServer, None]:
    http_server = HttpServer(handler, limits, certificates, rule, tally)
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(_bound(at))
        listener.setblocking(False)
        http_server.port = listener.getsockname()[1]
        await stack.enter_async_context(living(VitalTask.SWEEP, http_server.sweep))
        if certificates is not None:
            watching = living(VitalTask.CERTIFICATES, http_server.watch_certificates)
            await stack.enter_async_context(watching)
        accepting = living(VitalTask.ACCEPT, lambda: http_server.accept(listener))
        await stack.enter_async_context(accepting)
        try:
            yield http_server
        finally:
            await http_server.drain()


def _bound(at: HostPort) -> socket.socket:
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    try:
        return socket.create_server(at, family=family, backlog=1024)
    except OSError as error:
        raise PortTaken(str(at), reason_of(error)) from error
