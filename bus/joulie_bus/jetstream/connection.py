"""One connection to the broker. It reconnects by itself until it is closed, and hides no error."""

import asyncio
import contextlib
import random
import re
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.jetstream.nats_internals import JoulieClient, Receiver, require_compatible
from joulie_bus.jetstream.unanswered import ELECTION_S, IN_VAIN_S, Unanswered
from joulie_bus.log.answered import NO_LEADER, TEMPORARY
from joulie_bus.log.protocol import Listener
from joulie_bus.runtime import metrics, nats_keys
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.system_errors import reason_of
from joulie_bus.streams.subjects import Stream

Handler = Callable[[Msg], Awaitable[None]]

MAX_PAYLOAD = 8 * 1024 * 1024  # one commit's changes to 5,000 nodes are about 2 MB
TURN = 16  # messages sent before other tasks get a turn; half a millisecond
OPEN_S = 10.0
OPEN_OF_MANY_S = 60.0  # its third attempt is the first one with its full patience
API_TIMEOUT_S = 5.0  # a cluster without a leader answers after its election, about 4 s
ROUND_TRIP_S = 2
NO_RESPONDERS = 503  # no program answers on the subject
FORBIDDEN = 403
CLOSE_TIMEOUT_S = 2.0
CANCEL_AGAIN_S = 0.1
MINUTE_S = 60.0
TEMPORARY_S = 10.0  # of repeating a request that is refused so
ASK_AGAIN_S = 0.5
log = get_logger("bus")


WAS_REACHED = "It was reached before: it, or this machine, may be busy. Try again."


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The URL of the broker and the credentials. `repr` never shows the password.

    Several URLs, separated by commas, are servers of one cluster.
    """

    url: str
    user: str = ""
    password: str = ""
    nkey_file: str = ""
    creds_file: str = ""
    token_file: str = ""  # read for each connection, because tokens of pods are renewed
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    inbox: str = "_INBOX"
    direct: bool = False  # reads streams by direct gets, for a user that may create no consumer
    of_agent: bool = False  # one of thousands that connect at once after a restart of the broker
    leaves: bool = True  # a server that gives no answers, for another one of the cluster
    advice: str = "Is NATS_URL right, and is the server up?"  # if it cannot be reached

    def __repr__(self) -> str:
        return f"Address(url={self.safe_url!r}, user={self.user!r})"

    def as_settings(self) -> dict[str, str]:
        """For the environment of a process, as a user with a password."""
        return {
            "NATS_URL": self.url,
            "NATS_USER": self.user,
            "NATS_PASSWORD": self.password,
            "NATS_INBOX": self.inbox,
        }

    @property
    def is_one_of_many(self) -> bool:
        """The broker, and the service that it asks about tokens, have thousands to answer at
        once."""
        return self.of_agent or bool(self.token_file)

    @property
    def patience_s(self) -> float:
        """With the first connection."""
        return OPEN_OF_MANY_S if self.is_one_of_many else OPEN_S

    @property
    def safe_url(self) -> str:
        """The URL without the password that it may contain, for logs and errors."""
        return ",".join(_without_password(url) for url in self.url.split(","))


def _refused(subject: str) -> str:
    return f"{_kind_of(subject)} but that it is unavailable"


def _kind_of(subject: str) -> str:
    """A request of JetStream's API, without the name of a consumer."""
    return ".".join(subject.split(".")[:5])


def _without_password(url: str) -> str:
    scheme, slashes, rest = url.rpartition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


class Denial(NamedTuple):
    """A permission that the broker denied. It reports the subject in lower case."""

    verb: str  # publish or subscription
    subject: str

    def concerns(self, verb: str, subject: str) -> bool:
        return self.verb == verb and self.subject == subject.lower()


class Connection:
    """Wraps the client of nats-py. `Connection.open` returns it open; no half-open state exists."""

    def __init__(self, client: JoulieClient, address: Address, state: "_State") -> None:
        self._client = client
        self._state = state
        self._sent = 0
        self._unanswered = Unanswered()
        self._leaving: asyncio.Task[None] | None = None
        self.address = address
        # By server and stream: a message that the server's copy lacks, as readers found.
        self.gaps: dict[tuple[str, Stream], int] = {}

    @classmethod
    async def open(cls, address: Address, name: str, patience_s: float = 0.0) -> "Connection":
        """Tries for `patience_s`. Once open, the connection reconnects until it is closed."""
        require_compatible()
        state = _State()
        client = JoulieClient(state.on_error, one_of_many=address.is_one_of_many)
        try:
            await _within(
                patience_s or address.patience_s, client.connect(**_options(address, name, state))
            )
        except (TimeoutError, OSError, NatsError) as error:
            state.closing = True
            async with _bounded_close():
                await _close_client(client)
            why = reason_of(error) or state.last or "no answer in time"
            raise Unreachable(address.safe_url, why, address.advice) from error
        state.opened = True
        state.order_servers = client.order_servers
        return cls(client, address, state)

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def lives(self) -> int:
        """Counts connections: a request of an earlier connection will not be answered."""
        return self._state.lives

    @property
    def losses(self) -> int:
        """How often the connection was lost. It counts before anything of the next one arrives,
        `lives` after it."""
        return self._state.losses

    @property
    def server_version(self) -> str:
        """The version of the nats-server at the other end."""
        found = self._client.connected_server_version
        return f"{found.major}.{found.minor}.{found.patch}"

    @property
    def max_payload(self) -> int:
        return min(self._client.max_payload, MAX_PAYLOAD)

    async def close(self) -> None:
        self._state.closing = True
        async with _bounded_close():
            await _close_client(self._client)

    async def send(
        self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        with _raising_cancellations():
            await self._client.publish(subject, data, reply, headers)
        self._sent += 1
        if self._sent % TURN == 0:
            await asyncio.sleep(0)  # so that other tasks of the loop wait no longer than this

    async def flush(self) -> None:
        """Returns when the broker has read all that was sent and its errors have arrived."""
        for _ in range(2):  # nats-py's first ping overtakes buffered writes; the second cannot
            with _raising_cancellations():
                await self._client.flush(ROUND_TRIP_S)

    @contextlib.asynccontextmanager
    async def subscribed(
        self,
        subject: str,
        handler: Handler,
        receiver: Receiver | None = None,
        with_headers: bool = False,
        group: str = "",
    ) -> AsyncGenerator[None, None]:
        """Drops no message: whatever requests messages also limits their number.

        With a `receiver`, messages go to it at once, and only statuses go to `handler`;
        `with_headers` also those, and it gets the headers in place of a reply subject.
        """
        denied: list[Denial] = []
        before = _cancellations()
        subscription = await self._client.subscribe(
            subject, group, cb=handler, pending_msgs_limit=0, pending_bytes_limit=0
        )
        if receiver is not None:
            self._client.dispatch(subscription, receiver, with_headers)
        try:
            _raise_cancellation_since(before)
            # A broker that is down reports a denial after the reconnection.
            with (
                self.reporting_denials(denied.append),
                contextlib.suppress(NatsError, OSError, TimeoutError),
            ):
                await self.flush()
            if any(denial.concerns("subscription", subject) for denial in denied):
                raise BrokerRefused(subject, FORBIDDEN, "this user may not subscribe to it")
            yield
        finally:
            self._client.stop_dispatching(subscription)
            async with _bounded_close():
                await subscription.unsubscribe()

    @contextlib.asynccontextmanager
    async def listening(self, subject: str, handler: Listener) -> AsyncGenerator[None, None]:
        """Passes the data of live messages, which are never stored, to `handler`.

        A role that reads streams can have the broker send stored messages to any subscription.
        Stored messages keep their subject, which distinguishes them from live ones.
        """
        wanted, is_pattern = subject.encode(), "*" in subject or ">" in subject

        def receive(found: bytes, _reply: bytes, data: bytes) -> None:
            if is_pattern or found == wanted:
                handler(data)

        async def unpack(message: Msg) -> None:
            receive(message.subject.encode(), b"", message.data)

        async with self.subscribed(subject, unpack, receive):
            yield

    @contextlib.contextmanager
    def reporting_denials(self, on_denial: Callable[[Denial], None]) -> Generator[None, None, None]:
        """Within the block each denial of the broker goes to `on_denial`."""
        self._state.denial_callbacks.append(on_denial)
        try:
            yield
        finally:
            self._state.denial_callbacks.remove(on_denial)

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    async def request(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str] | None = None,
        timeout_s: float = API_TIMEOUT_S,
    ) -> Msg:
        """Raises BrokerRefused with code 403 if the user may not send this or read the reply."""
        kind, asked_at = _kind_of(subject), time.monotonic()
        try:
            answer = await self._unless_denied(
                subject, self._client.request(subject, data, timeout_s, headers=headers)
            )
        except NoRespondersError as error:
            raise BrokerRefused(
                subject, NO_RESPONDERS, "JetStream is not available there"
            ) from error
        except (TimeoutError, NatsError) as error:
            self._note_in_vain(kind, asked_at, IN_VAIN_S)
            why = f"{subject}: {error or 'no answer'}"
            raise Unreachable(self.address.safe_url, why, WAS_REACHED) from error
        except asyncio.CancelledError:
            self._note_in_vain(kind, asked_at, IN_VAIN_S)
            raise
        self._unanswered.answered(kind)
        return answer

    def _note_in_vain(self, kind: str, asked_at: float, patience_s: float) -> None:
        if self._unanswered.is_long(kind, asked_at, time.monotonic(), patience_s):
            self.leave_server(f"no answer to {kind}")

    def leave_server(self, why: str) -> None:
        """Reconnects to another server of the cluster, if there is one and it is time for it.

        While no server answers, as during an election, they are left again and again: one line.
        """
        now, here = time.monotonic(), self._client.connected_url
        if not self.is_connected or here is None or self._unanswered.stays(now):
            return
        servers = {server.uri.netloc for server in self._client.server_pool} | {here.netloc}
        if len(servers) == 1 or not self.address.leaves:
            return
        if self._unanswered.left(now, len(servers), why):
            log.warning("server_left", server=here.netloc.rpartition("@")[2], why=why)
        self._leaving = asyncio.ensure_future(self._client.force_reconnect())

    async def _unless_denied(self, subject: str, asking: Coroutine[Any, Any, Msg]) -> Msg:
        """The broker does not reply to a denied request; it reports an error beside it."""
        denied: asyncio.Future[Denial] = asyncio.get_running_loop().create_future()

        def on_denial(denial: Denial) -> None:
            is_inbox = denial.subject.startswith(f"{self.address.inbox}.".lower())
            if (is_inbox or denial.concerns("publish", subject)) and not denied.done():
                denied.set_result(denial)

        asked = asyncio.create_task(asking)
        try:
            with self.reporting_denials(on_denial):
                either: set[asyncio.Future[Any]] = {asked, denied}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if denied.done():
                raise BrokerRefused(subject, FORBIDDEN, "this user may not do that")
            return await asked
        finally:
            asked.cancel()

    async def api(
        self, verb: str, body: dict[str, Any] | None = None, *, of_any_copy: bool = False
    ) -> dict[str, Any]:
        """A JetStream API call. Raises BrokerRefused with the code of the broker.

        A request without a reply is sent a second time: the broker may have restarted, or this
        process may have been too busy to read the reply. One that is refused for the moment, as
        during an election, is repeated for some seconds. Requests must be safe to repeat. What a
        server that knows no leader states of a stream counts with `of_any_copy` only.
        """
        subject = f"$JS.API.{verb}"
        payload = msgspec.json.encode(body) if body is not None else b""
        begun = time.monotonic()
        while True:
            answer = msgspec.json.decode(
                await self._answered(subject, payload), type=dict[str, Any]
            )
            no_leader = None if of_any_copy else _without_leader(answer)
            if (refusal := answer.get("error") or no_leader) is None:
                self._unanswered.answered(_refused(subject))
                return answer
            code = int(refusal.get("err_code", refusal.get("code", 0)))
            if code not in TEMPORARY or time.monotonic() - begun > TEMPORARY_S:
                raise BrokerRefused(
                    subject, code, str(refusal.get("description", "no reason given"))
                )
            self._note_in_vain(_refused(subject), time.monotonic(), ELECTION_S)
            await asyncio.sleep(ASK_AGAIN_S)

    async def _answered(self, subject: str, payload: bytes) -> bytes:
        is_second = False
        while True:
            life = self.lives
            try:
                return (await self.request(subject, payload)).data
            except Unreachable:
                if is_second and life == self.lives:
                    raise
                is_second = True


def _without_leader(answer: dict[str, Any]) -> dict[str, Any] | None:
    """A refusal in place of what a server states of a stream whose leader it does not know. That is
    the state of its own copy, which may be late, and `active` of the others is 0.
    """
    cluster = answer.get("cluster") or {}
    if cluster.get("leader") or not cluster.get("replicas"):
        return None
    return {"err_code": NO_LEADER, "description": "the server knows no leader of it"}


@contextlib.contextmanager
def _raising_cancellations() -> Generator[None, None, None]:
    """Also if the block raises something else, as a flush does whose time is over."""
    before = _cancellations()
    try:
        yield
    finally:
        _raise_cancellation_since(before)


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _raise_cancellation_since(before: int) -> None:
    """Raises a cancellation that was swallowed; without it the task would never end.

    nats-py swallows one if its socket is full, `asyncio.wait_for` of Python 3.11 if the result
    arrives at the same time.
    """
    if _cancellations() > before:
        raise asyncio.CancelledError


async def _within(patience_s: float, connecting: Coroutine[Any, Any, None]) -> None:
    """Raises TimeoutError after `patience_s`.

    nats-py tries forever, and swallows a cancellation that meets it while it closes the socket of a
    failed attempt. The cancellation is therefore repeated.
    """
    attempts = asyncio.create_task(connecting)
    try:
        await asyncio.wait({attempts}, timeout=patience_s)
        is_late = not attempts.done()
    finally:
        while not attempts.done():
            attempts.cancel()
            await asyncio.wait({attempts}, timeout=CANCEL_AGAIN_S)
    if is_late:
        raise TimeoutError from (None if attempts.cancelled() else attempts.exception())
    attempts.result()


@contextlib.asynccontextmanager
async def _bounded_close() -> AsyncGenerator[None, None]:
    """A broker that is down or frozen delays closing by at most `CLOSE_TIMEOUT_S`."""
    with contextlib.suppress(NatsError, OSError, TimeoutError):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            yield


def _options(address: Address, name: str, state: "_State") -> dict[str, Any]:
    _check_files(address)
    several = address.url.split(",")
    random.shuffle(several)
    return {
        "servers": several if len(several) > 1 else address.url,
        "dont_randomize": True,  # `order_servers` does, and puts the server that was left last
        "name": name,
        "user": address.user or None,
        "password": address.password or None,
        "nkeys_seed": address.nkey_file or None,
        "user_credentials": address.creds_file or None,
        "token": Path(address.token_file).read_text if address.token_file else None,
        "inbox_prefix": address.inbox,
        "tls": _tls(address),
        "max_reconnect_attempts": -1,  # nats-py's own default gives up after two minutes
        "ping_interval": 3,  # a dead peer is noticed in 9 s instead of 4 min
        "max_outstanding_pings": 2,
        "error_cb": state.on_error,
        "disconnected_cb": state.on_lost,
        "reconnected_cb": state.on_found,
    }


async def _close_client(client: JoulieClient) -> None:
    try:
        with contextlib.suppress(AssertionError):  # nats-py raises it if no socket was ever opened
            await client.close()
    finally:
        client.close_socket()


def _check_files(address: Address) -> None:
    """The settings check these too; but nats-py never stops reading a file without a JWT."""
    try:
        if address.nkey_file:
            nats_keys.check_seed(Path(address.nkey_file).read_text())
        if address.creds_file:
            nats_keys.check_credentials(Path(address.creds_file).read_text())
    except ValueError as error:
        file = address.nkey_file or address.creds_file
        raise Unreachable(address.safe_url, f"{file} is {error}", "Replace the file.") from error


def _tls(address: Address) -> ssl.SSLContext | None:
    if not (address.ca_file or address.cert_file):
        return None  # nats-py itself uses TLS if the URL begins with tls://
    context = ssl.create_default_context(cafile=address.ca_file or None)
    if address.cert_file:
        # Without `password`, a key with a passphrase prompts for it on the terminal.
        context.load_cert_chain(address.cert_file, address.key_file, password=str)
    return context


_DENIAL = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')


class MinuteLines:
    """At most one log line a minute of each kind."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}

    def due(self, kind: str, now: float) -> int | None:
        """How many were not logged since the last line; None if a line is not due yet."""
        if now < self._next.get(kind, now):
            self._unlogged[kind] = self._unlogged.get(kind, 0) + 1
            return None
        self._next[kind] = now + MINUTE_S
        return self._unlogged.pop(kind, 0)


class _State:
    """Logs and counts what happens to a connection outside of any call."""

    def __init__(self) -> None:
        self.denial_callbacks: list[Callable[[Denial], None]] = []
        self.opened = False
        self.lives = 1
        self.losses = 0
        self.closing = False  # a disconnection while closing is not logged
        self.last = ""
        self.order_servers: Callable[[], None] = lambda: None
        self._unread = MinuteLines()
        self._permission, self._other = (
            metrics.BROKER_ERRORS.labels(kind=kind) for kind in ("permission", "other")
        )

    async def on_error(self, error: Exception) -> None:
        text = reason_of(error) or type(error).__name__
        is_repeated = text == self.last
        if "Authorization" not in self.last:  # errors after it explain nothing
            self.last = text
        is_permission = "permissions violation" in text.lower()
        (self._permission if is_permission else self._other).inc()
        if found := _DENIAL.search(text.lower()):
            for on_denial in list(self.denial_callbacks):
                on_denial(Denial(found[1], found[2]))
        if is_permission and is_repeated:
            return  # one log line for a thousand denied messages to one subject
        if not isinstance(error, NatsError):
            self._log_unread(error, text)
        elif self.opened and not self.closing:
            kind = "permission" if is_permission else "other"
            log.warning("broker_error", kind=kind, error=text)

    def _log_unread(self, error: Exception, text: str) -> None:
        """A listener could not use a message; a sender can repeat that as often as it likes."""
        kind = type(error).__name__
        if (more := self._unread.due(kind, time.monotonic())) is not None:
            log.warning("broker_error", kind="message", error=text, unlogged=more)

    async def on_lost(self) -> None:
        self.losses += 1
        self.order_servers()
        if self.opened and not self.closing:
            log.warning("broker_lost", what="facts are kept and sent again once it is back")

    async def on_found(self) -> None:
        self.lives += 1
        log.info("broker_found")
