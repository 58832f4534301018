"""Publishes many messages at once and returns when each is stored.

A message without an acknowledgement is sent again under the same id, so that the broker stores it
once; this also covers restarts of the broker.

Many messages of one stream are sent as batches: a broker that syncs its disk for every message
syncs once for each. If a stream takes no batches, each message is sent singly for a while.

Messages of one stream are sent in the order of the calls, and none overtakes a batch. Only after a
failure of the broker can a message be stored after later ones: at most WINDOW of them, because
readers remember that many missing numbers of a producer and drop older ones as duplicates.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.jetstream.batch import stored_together
from joulie_bus.jetstream.connection import FORBIDDEN, Connection, Denial
from joulie_bus.jetstream.unanswered import IN_VAIN_S
from joulie_bus.log.answered import TEMPORARY
from joulie_bus.log.protocol import require_speakable
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.vital_tasks import VitalTask, living
from joulie_bus.streams.batch_limits import MAX_BATCH
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import kind_of

WINDOW = 250  # most unacknowledged messages that were sent singly
ACK_DEADLINE_S = 2.0  # an fsync of a slow disk takes 0.1 s, an election up to 5 s
TICK_S = 0.25
AGAIN_S = 60.0  # until a stream that took no batch is offered one again
MANY = 20  # a batch costs as much as this many single messages with a sync
HEADERS = 64  # bytes of the header, without the id in it
STORE_FAILED = 10077  # "maximum bytes exceeded" is permanent, "store is closed" is not
STREAM_NOT_FOUND = 10059
TOO_LARGE = 10054
log = get_logger("bus")


class _Ack(msgspec.Struct):
    class ApiError(msgspec.Struct):
        code: int = 0
        err_code: int = 0
        description: str = ""

        @property
        def number(self) -> int:
            return self.err_code or self.code

        @property
        def passes(self) -> bool:
            if self.number == STORE_FAILED:
                return "maximum" not in self.description
            return self.number in TEMPORARY

    seq: int = 0
    error: ApiError | None = None


class _Flight:
    """A message that is not acknowledged yet, and the call that waits for it."""

    __slots__ = ("deadline", "message", "sent_at", "unanswered", "waiter")

    def __init__(self, message: Message, waiter: "_Waiter", sent_at: float) -> None:
        self.message = message
        self.waiter = waiter
        self.sent_at = sent_at
        self.deadline = sent_at + ACK_DEADLINE_S
        self.unanswered = False  # the broker reported no responders


class _Waiter:
    """Counts the unacknowledged messages of one call."""

    def __init__(self, count: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count

    def landed(self) -> None:
        self._left -= 1
        if self._left == 0 and not self.done.done():
            self.done.set_result(None)

    def refused(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Publisher:
    """`async with Publisher.on(connection)`; one per connection is enough."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._singly_until: dict[str, float] = {}  # by kind, since its stream took no batch
        self._inbox = connection.new_inbox()
        self._flights: dict[str, _Flight] = {}
        self._room = asyncio.Semaphore(WINDOW)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by kind
        self._next = 0
        self._decode = msgspec.json.Decoder(_Ack).decode

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, connection: Connection) -> AsyncGenerator["Publisher", None]:
        publisher = cls(connection)
        with connection.reporting_denials(publisher._on_denial):
            async with (
                connection.subscribed(
                    f"{publisher._inbox}.*", publisher._on_status, publisher._on_ack
                ),
                living(VitalTask.RESEND, publisher._resend_for_ever),
            ):
                yield publisher

    async def publish(self, messages: Sequence[Message]) -> None:
        """Returns when all are stored. Raises BrokerRefused if one cannot be stored."""
        if not messages:
            return
        for message in messages:
            self._check_size(message)
        kinds = sorted({kind_of(message.subject) for message in messages})
        async with contextlib.AsyncExitStack() as turns:
            for kind in kinds:
                await turns.enter_async_context(self._turns[kind])
            if len(messages) < MANY or len(kinds) > 1:
                waiters = [await self._send_singly(messages)]
            else:
                waiters = await self._send_many(messages, *kinds)
        await asyncio.gather(*(waiter.done for waiter in waiters))

    async def _send_many(self, messages: Sequence[Message], kind: str) -> list["_Waiter"]:
        """Stores batches, and sends singly what cannot be stored so."""
        waiters = []
        for at in range(0, len(messages), MAX_BATCH):
            some = messages[at : at + MAX_BATCH]
            if not await self._publish_together(some, kind):
                waiters.append(await self._send_singly(some))
        return waiters

    async def _publish_together(self, messages: Sequence[Message], kind: str) -> bool:
        now = asyncio.get_running_loop().time()
        if len(messages) < MANY or now < self._singly_until.get(kind, 0.0):
            return False
        if await stored_together(self._connection, messages):
            return True
        self._singly_until[kind] = now + AGAIN_S
        return False

    async def _send_singly(self, messages: Sequence[Message]) -> "_Waiter":
        """Returns what waits for the acknowledgements."""
        waiter = _Waiter(len(messages))
        for message in messages:
            await self._room.acquire()
            self._next += 1
            token = f"{self._inbox}.{self._next}"
            now = asyncio.get_running_loop().time()
            self._flights[token] = _Flight(message, waiter, now)
            await self._send(token, message)
        return waiter

    def _check_size(self, message: Message) -> None:
        """Refuses too large messages: the broker would close the connection at each resend."""
        require_speakable(message.subject)
        size, most = len(message.data) + len(message.id) + HEADERS, self._connection.max_payload
        if size > most:
            why = f"{size} bytes are more than the {most} that it takes"
            raise BrokerRefused(message.subject, TOO_LARGE, why)

    async def _send(self, token: str, message: Message) -> None:
        # What cannot be sent now (reconnecting, buffer full) is resent after its deadline.
        with contextlib.suppress(NatsError, OSError):
            await self._connection.send(
                message.subject, message.data, token, {"Nats-Msg-Id": message.id}
            )

    async def _on_status(self, answer: Msg) -> None:
        """503: no responders at the moment. The message is resent."""
        if answer.data:  # an acknowledgement, if the client does not dispatch directly
            self._on_ack(answer.subject.encode(), b"", answer.data)
        elif (flight := self._flights.get(answer.subject)) is not None:
            flight.unanswered = True

    def _on_ack(self, subject: bytes, _reply: bytes, data: bytes) -> None:
        token = subject.decode()
        flight = self._flights.get(token)
        if flight is None:
            return  # a resent message was acknowledged twice
        refusal = self._decode(data).error
        if refusal is None:
            flight.waiter.landed()
            self._leave(token)
        elif not refusal.passes:
            self._refuse(token, flight, refusal.number, refusal.description)

    def _on_denial(self, denial: Denial) -> None:
        """Refuses the messages of a denied subject, as a resend would be denied too."""
        barred = [
            (token, flight)
            for token, flight in self._flights.items()
            if denial.concerns("publish", flight.message.subject)
        ]
        for token, flight in barred:
            self._refuse(token, flight, FORBIDDEN, "this user may not publish there")

    def _refuse(self, token: str, flight: _Flight, code: int, why: str) -> None:
        flight.waiter.refused(BrokerRefused(flight.message.subject, code, why))
        self._leave(token)

    def _leave(self, token: str) -> None:
        del self._flights[token]
        self._room.release()

    async def _resend_for_ever(self) -> None:
        loop, life = asyncio.get_running_loop(), self._connection.lives
        while True:
            await asyncio.sleep(TICK_S)
            if not self._connection.is_connected:
                continue
            now = loop.time()
            lost, life = life != self._connection.lives, self._connection.lives
            late = [(t, f) for t, f in self._flights.items() if lost or f.deadline <= now]
            for token, flight in late:
                if lost:  # with the acknowledgements of the last connection
                    flight.sent_at = now
                if flight.unanswered and await self._has_no_stream(flight.message.subject):
                    self._refuse(token, flight, STREAM_NOT_FOUND, "no stream takes this subject")
                    continue
                flight.unanswered = False
                flight.deadline = now + ACK_DEADLINE_S
                metrics.RESENT.inc()
                await self._send(token, flight.message)
            if late:
                log.warning("resent", messages=len(late), why="no acknowledgement in time")
            if any(now - flight.sent_at >= IN_VAIN_S for _, flight in late):
                self._connection.leave_server("no acknowledgement")

    async def _has_no_stream(self, subject: str) -> bool:
        """A stream without a leader is still listed, and a resend may succeed."""
        try:
            answer = await self._connection.api("STREAM.NAMES", {"subject": subject})
        except (BrokerRefused, Unreachable):
            return False
        return bool(answer["total"] == 0)
