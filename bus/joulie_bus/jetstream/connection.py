"""One connection to the broker: stays for ever, reconnects by itself, hides no error."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from joulie_bus import metrics
from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.log import Listener
from joulie_bus.logging import get_logger

Handler = Callable[[Msg], Awaitable[None]]

API_TIMEOUT_S = 5.0  # a cluster without a leader answers after its election, about 4 s
FAREWELL_S = 2.0
log = get_logger("bus")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the broker is and who we are. `repr` never shows the password."""

    url: str
    user: str = ""
    password: str = ""
    ca_file: str = ""

    def __repr__(self) -> str:
        return f"Address(url={self.shown!r}, user={self.user!r})"

    @property
    def shown(self) -> str:
        """The URL for people: without the password that somebody may have put into it."""
        scheme, slashes, rest = self.url.rpartition("://")
        return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


class Connection:
    """Wraps nats-py's client. `Connection.open` or nothing: there is no half-open state."""

    def __init__(self, client: Client, address: Address, tale: "_Tale") -> None:
        self._client = client
        self._tale = tale
        self.address = address

    @classmethod
    async def open(cls, address: Address, name: str, patience_s: float = 10.0) -> "Connection":
        """Tries until `patience_s` is over; once open it reconnects for ever."""
        client, tale = Client(), _Tale()
        try:
            async with asyncio.timeout(patience_s):
                await client.connect(**_options(address, name, tale))
        except (TimeoutError, OSError, NatsError) as error:
            tale.closing = True
            with contextlib.suppress(AssertionError):  # it never came as far as a socket
                await client.close()
            raise Unreachable(
                address.shown, tale.last or str(error) or "no answer in time"
            ) from error
        tale.opened = True
        return cls(client, address, tale)

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def max_payload(self) -> int:
        return self._client.max_payload

    async def close(self) -> None:
        self._tale.closing = True
        async with _farewell():
            await self._client.close()

    async def send(
        self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        task = asyncio.current_task()
        cancelled = task.cancelling() if task else 0
        await self._client.publish(subject, data, reply, headers)
        if task and task.cancelling() > cancelled:
            raise asyncio.CancelledError  # nats-py swallows it while it waits for a full socket

    async def flush(self) -> None:
        await self._client.flush()

    @contextlib.asynccontextmanager
    async def subscribed(self, subject: str, handler: Handler) -> AsyncGenerator[None, None]:
        """Nothing is dropped on our side: who asks for messages bounds how many he asks for."""
        subscription = await self._client.subscribe(
            subject, cb=handler, pending_msgs_limit=0, pending_bytes_limit=0
        )
        try:
            yield
        finally:
            async with _farewell():
                await subscription.unsubscribe()

    @contextlib.asynccontextmanager
    async def listening(self, subject: str, handler: Listener) -> AsyncGenerator[None, None]:
        """For what is told live and never stored: the bare bytes."""

        async def unpack(message: Msg) -> None:
            await handler(message.data)

        async with self.subscribed(subject, unpack):
            yield

    def new_inbox(self) -> str:
        return self._client.new_inbox()

    async def request(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str] | None = None,
        timeout_s: float = API_TIMEOUT_S,
    ) -> Msg:
        try:
            return await self._client.request(subject, data, timeout_s, headers=headers)
        except NoRespondersError as error:
            raise BrokerRefused(subject, 503, "JetStream is not available there") from error
        except (TimeoutError, NatsError) as error:
            raise Unreachable(self.address.shown, f"{subject}: {error or 'no answer'}") from error

    async def api(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """A JetStream API call; the broker's refusal comes back as BrokerRefused with its code."""
        subject = f"$JS.API.{verb}"
        payload = msgspec.json.encode(body) if body is not None else b""
        answer = msgspec.json.decode(
            (await self.request(subject, payload)).data, type=dict[str, Any]
        )
        if (refusal := answer.get("error")) is not None:
            code = int(refusal.get("err_code", refusal.get("code", 0)))
            raise BrokerRefused(subject, code, str(refusal.get("description", "no reason given")))
        return answer


@contextlib.asynccontextmanager
async def _farewell() -> AsyncGenerator[None, None]:
    """A broker that is gone or frozen takes none, and keeps nobody from leaving."""
    with contextlib.suppress(NatsError, OSError, TimeoutError):
        async with asyncio.timeout(FAREWELL_S):
            yield


def _options(address: Address, name: str, tale: "_Tale") -> dict[str, Any]:
    return {
        "servers": address.url,
        "name": name,
        "user": address.user or None,
        "password": address.password or None,
        "tls": ssl.create_default_context(cafile=address.ca_file) if address.ca_file else None,
        "max_reconnect_attempts": -1,  # nats-py's own default gives up after two minutes
        "reconnect_time_wait": 0.2 + 0.3 * int.from_bytes(os.urandom(1)) / 255,  # no stampede
        "ping_interval": 3,  # a dead peer is noticed in 9 s instead of 4 min
        "max_outstanding_pings": 2,
        "error_cb": tale.complain,
        "disconnected_cb": tale.lost,
        "reconnected_cb": tale.found,
    }


class _Tale:
    """What happens to a connection outside of any call, told once and counted."""

    def __init__(self) -> None:
        self.opened = False
        self.closing = False  # a farewell is not a loss
        self.last = ""

    async def complain(self, error: Exception) -> None:
        told = str(error) or type(error).__name__
        if "Authorization" not in self.last:  # what the broker does after it explains nothing
            self.last = told
        kind = "permission" if "permissions violation" in told.lower() else "other"
        metrics.BROKER_ERRORS.labels(kind=kind).inc()
        if self.opened and not self.closing:
            log.warning("broker_error", kind=kind, error=told)

    async def lost(self) -> None:
        if self.opened and not self.closing:
            log.warning("broker_lost", what="facts are kept and sent again once it is back")

    async def found(self) -> None:
        log.info("broker_found")
