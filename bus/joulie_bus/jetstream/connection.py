"""One connection to the broker: stays for ever, reconnects by itself, hides no error."""

import asyncio
import contextlib
import os
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.jetstream.client import Heard, JoulieClient
from joulie_bus.runtime import metrics, nats_keys
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.log import Listener

Handler = Callable[[Msg], Awaitable[None]]

TURN = 16  # messages that are sent in one go; half a millisecond
API_TIMEOUT_S = 5.0  # a cluster without a leader answers after its election, about 4 s
ROUND_TRIP_S = 2
FORBIDDEN = 403
FAREWELL_S = 2.0
log = get_logger("bus")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the broker is and who we are. `repr` never shows the password.

    Several URLs, with commas between, are servers of one cluster.
    """

    url: str
    user: str = ""
    password: str = ""
    nkey_file: str = ""
    creds_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    inbox: str = "_INBOX"

    def __repr__(self) -> str:
        return f"Address(url={self.shown!r}, user={self.user!r})"

    @property
    def shown(self) -> str:
        """The URL for people: without the password that somebody may have put into it."""
        return ",".join(_without_password(url) for url in self.url.split(","))


def _without_password(url: str) -> str:
    scheme, slashes, rest = url.rpartition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


class Denial(NamedTuple):
    """What the broker did not let us do. It tells the subject in small letters."""

    verb: str  # publish or subscription
    subject: str

    def concerns(self, verb: str, subject: str) -> bool:
        return self.verb == verb and self.subject == subject.lower()


class Connection:
    """Wraps nats-py's client. `Connection.open` or nothing: there is no half-open state."""

    def __init__(self, client: JoulieClient, address: Address, tale: "_Tale") -> None:
        self._client = client
        self._tale = tale
        self._sent = 0
        self.address = address

    @classmethod
    async def open(cls, address: Address, name: str, patience_s: float = 10.0) -> "Connection":
        """Tries until `patience_s` is over; once open it reconnects for ever."""
        client, tale = JoulieClient(), _Tale()
        try:
            async with asyncio.timeout(patience_s):
                await client.connect(**_options(address, name, tale))
        except (TimeoutError, OSError, NatsError) as error:
            tale.closing = True
            await _give_up(client)
            raise Unreachable(
                address.shown, tale.last or str(error) or "no answer in time"
            ) from error
        tale.opened = True
        return cls(client, address, tale)

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def lives(self) -> int:
        """Counts reconnections: what was asked for in an earlier life will not be answered."""
        return self._tale.lives

    @property
    def max_payload(self) -> int:
        return self._client.max_payload

    async def close(self) -> None:
        self._tale.closing = True
        async with _farewell():
            await _give_up(self._client)

    async def send(
        self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        before = _cancellations()
        await self._client.publish(subject, data, reply, headers)
        _heed_since(before)
        self._sent += 1
        if self._sent % TURN == 0:
            await asyncio.sleep(0)  # whoever else waits on this loop waits for no more

    async def flush(self) -> None:
        """The broker has seen what was sent, and we have heard what it said of that."""
        for _ in range(2):  # nats-py's ping overtakes what waits to be written; a second one cannot
            before = _cancellations()
            await self._client.flush(ROUND_TRIP_S)
            _heed_since(before)

    @contextlib.asynccontextmanager
    async def subscribed(
        self, subject: str, handler: Handler, heard: Heard | None = None
    ) -> AsyncGenerator[None, None]:
        """Nothing is dropped on our side: who asks for messages bounds how many he asks for.

        Where there is a `heard`, all goes there at once, and only statuses go to `handler`.
        """
        denied: list[Denial] = []
        before = _cancellations()
        subscription = await self._client.subscribe(
            subject, cb=handler, pending_msgs_limit=0, pending_bytes_limit=0
        )
        if heard is not None:
            self._client.hearers[subscription._id] = heard
        try:
            _heed_since(before)
            # A broker that is away says what it has to say once it is back.
            with (
                self.hearing_denials(denied.append),
                contextlib.suppress(NatsError, OSError, TimeoutError),
            ):
                await self.flush()
            if any(denial.concerns("subscription", subject) for denial in denied):
                raise BrokerRefused(subject, FORBIDDEN, "this user may not listen there")
            yield
        finally:
            self._client.hearers.pop(subscription._id, None)
            async with _farewell():
                await subscription.unsubscribe()

    @contextlib.asynccontextmanager
    async def listening(self, subject: str, handler: Listener) -> AsyncGenerator[None, None]:
        """For messages that are live and never stored: the bare bytes.

        A role that reads streams can have the broker send stored messages to any subscription.
        Stored messages keep their subject, which distinguishes them from live ones.
        """
        wanted, is_pattern = subject.encode(), "*" in subject or ">" in subject

        def heard(found: bytes, _reply: bytes, data: bytes) -> None:
            if is_pattern or found == wanted:
                handler(data)

        async def unpack(message: Msg) -> None:
            heard(message.subject.encode(), b"", message.data)

        async with self.subscribed(subject, unpack, heard):
            yield

    @contextlib.contextmanager
    def hearing_denials(self, hear: Callable[[Denial], None]) -> Generator[None, None, None]:
        self._tale.hearers.append(hear)
        try:
            yield
        finally:
            self._tale.hearers.remove(hear)

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    async def request(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str] | None = None,
        timeout_s: float = API_TIMEOUT_S,
    ) -> Msg:
        """Raises BrokerRefused with code 403 if we may not ask this, or not hear the answer."""
        try:
            return await self._unless_denied(
                subject, self._client.request(subject, data, timeout_s, headers=headers)
            )
        except NoRespondersError as error:
            raise BrokerRefused(subject, 503, "JetStream is not available there") from error
        except (TimeoutError, NatsError) as error:
            raise Unreachable(self.address.shown, f"{subject}: {error or 'no answer'}") from error

    async def _unless_denied(self, subject: str, asking: Coroutine[Any, Any, Msg]) -> Msg:
        """The broker answers a question that it denies with silence, and tells us beside it."""
        denied: asyncio.Future[Denial] = asyncio.get_running_loop().create_future()

        def hear(denial: Denial) -> None:
            is_inbox = denial.subject.startswith(f"{self.address.inbox}.".lower())
            if (is_inbox or denial.concerns("publish", subject)) and not denied.done():
                denied.set_result(denial)

        asked = asyncio.create_task(asking)
        try:
            with self.hearing_denials(hear):
                either: set[asyncio.Future[Any]] = {asked, denied}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if denied.done():
                raise BrokerRefused(subject, FORBIDDEN, "this user may not do that")
            return await asked
        finally:
            asked.cancel()

    async def api(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """A JetStream API call; the broker's refusal comes back as BrokerRefused with its code.

        What is asked here may be asked twice: a broker that fell over the question is asked again,
        and so is one whose answer did not come in time. It may have been us who did not listen.
        """
        subject = f"$JS.API.{verb}"
        payload = msgspec.json.encode(body) if body is not None else b""
        answer = msgspec.json.decode(await self._answered(subject, payload), type=dict[str, Any])
        if (refusal := answer.get("error")) is not None:
            code = int(refusal.get("err_code", refusal.get("code", 0)))
            raise BrokerRefused(subject, code, str(refusal.get("description", "no reason given")))
        return answer

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


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _heed_since(before: int) -> None:
    """Some are swallowed: by nats-py where its socket is full, by `asyncio.wait_for` of Python 3.11
    where what it waits for has come meanwhile. Whoever went on would never end.
    """
    if _cancellations() > before:
        raise asyncio.CancelledError


@contextlib.asynccontextmanager
async def _farewell() -> AsyncGenerator[None, None]:
    """A broker that is gone or frozen takes none, and keeps nobody from leaving."""
    with contextlib.suppress(NatsError, OSError, TimeoutError):
        async with asyncio.timeout(FAREWELL_S):
            yield


def _options(address: Address, name: str, tale: "_Tale") -> dict[str, Any]:
    _check_files(address)
    several = address.url.split(",")
    return {
        "servers": several if len(several) > 1 else address.url,
        "name": name,
        "user": address.user or None,
        "password": address.password or None,
        "nkeys_seed": address.nkey_file or None,
        "user_credentials": address.creds_file or None,
        "inbox_prefix": address.inbox,
        "tls": _tls(address),
        "max_reconnect_attempts": -1,  # nats-py's own default gives up after two minutes
        "reconnect_time_wait": 0.2 + 0.3 * int.from_bytes(os.urandom(1)) / 255,  # no stampede
        "ping_interval": 3,  # a dead peer is noticed in 9 s instead of 4 min
        "max_outstanding_pings": 2,
        "error_cb": tale.complain,
        "disconnected_cb": tale.lost,
        "reconnected_cb": tale.found,
    }


async def _give_up(client: Client) -> None:
    with contextlib.suppress(AssertionError):  # it never came as far as a socket
        await client.close()
    # Once refused it counts as closed, though it has tried again: that socket is still open.
    if (transport := getattr(client, "_transport", None)) is not None:
        transport.close()


def _check_files(address: Address) -> None:
    """Again, though the settings did: nats-py reads for ever where there is no JWT."""
    try:
        if address.nkey_file:
            nats_keys.check_seed(Path(address.nkey_file).read_text())
        if address.creds_file:
            nats_keys.check_credentials(Path(address.creds_file).read_text())
    except ValueError as error:
        file = address.nkey_file or address.creds_file
        raise Unreachable(address.shown, f"{file} is {error}") from error


def _tls(address: Address) -> ssl.SSLContext | None:
    if not (address.ca_file or address.cert_file):
        return None  # nats-py itself speaks TLS when the URL begins with tls://
    context = ssl.create_default_context(cafile=address.ca_file or None)
    if address.cert_file:
        # A key with a passphrase would ask for it on the terminal; nobody is there to answer.
        context.load_cert_chain(address.cert_file, address.key_file, password=str)
    return context


_DENIAL = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')


class _Tale:
    """What happens to a connection outside of any call, told once and counted."""

    def __init__(self) -> None:
        self.hearers: list[Callable[[Denial], None]] = []
        self.opened = False
        self.lives = 1
        self.closing = False  # a farewell is not a loss
        self.last = ""

    async def complain(self, error: Exception) -> None:
        told = str(error) or type(error).__name__
        is_old = told == self.last
        if "Authorization" not in self.last:  # what the broker does after it explains nothing
            self.last = told
        kind = "permission" if "permissions violation" in told.lower() else "other"
        metrics.BROKER_ERRORS.labels(kind=kind).inc()
        if found := _DENIAL.search(told.lower()):
            for hear in list(self.hearers):
                hear(Denial(found[1], found[2]))
        if kind == "permission" and is_old:
            return  # a thousand messages to one subject are denied with one line
        if self.opened and not self.closing:
            log.warning("broker_error", kind=kind, error=told)

    async def lost(self) -> None:
        if self.opened and not self.closing:
            log.warning("broker_lost", what="facts are kept and sent again once it is back")

    async def found(self) -> None:
        self.lives += 1
        log.info("broker_found")
