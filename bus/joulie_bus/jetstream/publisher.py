"""Publishes many messages at once and returns when each is stored.

A lost message is sent again under the same id, so that the broker stores it once; this also covers
restarts of the broker. `in_flight` has the rules.

Many messages of one stream are sent as batches: a broker that syncs its disk for every message
syncs once for each. If a stream takes no batches, each message is sent singly for a while.

Messages of one stream are sent in the order of the calls, and none overtakes a batch. Only after a
failure of the broker can a message be stored after later ones: at most WINDOW of them, because
readers remember that many missing numbers of a producer and drop older ones as duplicates.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from joulie_bus.core.backoff import Backoff
from joulie_bus.errors import BrokerRefused, Unreachable
from joulie_bus.jetstream.batch import Together, stored_together
from joulie_bus.jetstream.connection import FORBIDDEN, Connection, Denial
from joulie_bus.jetstream.in_flight import (
    ACK_DEADLINE_S,
    LONGEST_PAUSE_S,
    Flight,
    InFlight,
)
from joulie_bus.jetstream.unanswered import IN_VAIN_S
from joulie_bus.log.answered import TEMPORARY
from joulie_bus.log.protocol import require_speakable
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.vital_tasks import VitalTask, living
from joulie_bus.streams.batch_limits import MAX_BATCH
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import kind_of

WINDOW = 250  # most unacknowledged messages of a stream that were sent singly
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


class _Waiter:
    """Counts the unacknowledged messages of one call."""

    def __init__(self, count: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count

    def settle(self, refusal: Exception | None) -> None:
        self._left -= 1
        if self.done.done():
            return
        if refusal is not None:
            self.done.set_exception(refusal)
        elif self._left == 0:
            self.done.set_result(None)


class _Lane:
    """What is sent to one stream."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.in_flight = InFlight()
        self.turn = asyncio.Lock()
        self.singly_until = 0.0  # since the stream took no batch
        self.sent_again = 0  # since the last time that nothing was lost
        self._room = asyncio.Semaphore(WINDOW)
        self._flows = asyncio.Event()
        self._flows.set()

    async def until_it_flows(self) -> None:
        """Returns once everything that was lost is stored."""
        await self._flows.wait()

    async def take_room(self) -> None:
        await self._room.acquire()
        await self._flows.wait()

    def settle(self, flight: Flight, refusal: Exception | None = None) -> None:
        """The message has left."""
        self._room.release()
        flight.settle(refusal)
        self.note_recovery()

    def note_recovery(self) -> None:
        """Holds new messages back while something is lost; logs its begin and its end."""
        is_recovering = self.in_flight.is_recovering
        if is_recovering == (not self._flows.is_set()):
            return
        if is_recovering:
            self._flows.clear()
            log.warning(
                "unacknowledged",
                stream=self.kind,
                messages=len(self.in_flight),
                meanwhile="one is sent again from time to time, and new ones wait",
            )
        else:
            self._flows.set()
            log.warning("acknowledged_again", stream=self.kind, sent_again=self.sent_again)
            self.sent_again = 0


class Publisher:
    """`async with Publisher.on(connection)`; one per connection is enough."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inbox = connection.new_inbox()
        self._lanes: dict[str, _Lane] = {}
        self._next = 0
        self._look = asyncio.Event()  # something can be sent again now
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
                await turns.enter_async_context(self._lane(kind).turn)
            if len(messages) < MANY or len(kinds) > 1:
                waiters = [await self._send_singly(messages)]
            else:
                waiters = await self._send_many(messages, *kinds)
        await asyncio.gather(*(waiter.done for waiter in waiters))

    def _lane(self, kind: str) -> _Lane:
        if kind not in self._lanes:
            self._lanes[kind] = _Lane(kind)
        return self._lanes[kind]

    async def _send_many(self, messages: Sequence[Message], kind: str) -> list["_Waiter"]:
        """Stores batches, and sends singly what cannot be stored so."""
        waiters = []
        for at in range(0, len(messages), MAX_BATCH):
            some = messages[at : at + MAX_BATCH]
            if not await self._publish_together(some, self._lane(kind)):
                waiters.append(await self._send_singly(some))
        return waiters

    async def _publish_together(self, messages: Sequence[Message], lane: _Lane) -> bool:
        """A batch without an answer is sent again as one: singly, it is more work for a broker that
        is slow."""
        await lane.until_it_flows()
        now, pause = asyncio.get_running_loop().time, Backoff(ACK_DEADLINE_S, LONGEST_PAUSE_S)
        if len(messages) < MANY or now() < lane.singly_until:
            return False
        while (found := await stored_together(self._connection, messages)) is Together.UNKNOWN:
            pause_s = pause.failed()
            log.warning("batch_unanswered", stream=lane.kind, sent_again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            metrics.RESENT.inc(len(messages))
        if found is Together.REFUSED:
            lane.singly_until = now() + AGAIN_S
        return found is Together.STORED

    async def _send_singly(self, messages: Sequence[Message]) -> "_Waiter":
        """Returns what waits for the acknowledgements."""
        waiter = _Waiter(len(messages))
        for message in messages:
            lane = self._lane(kind_of(message.subject))
            await lane.take_room()
            flight, copy = Flight(message, waiter.settle), self._new_copy()
            lane.in_flight.sent(flight, copy, asyncio.get_running_loop().time())
            await self._send(lane, message, copy)
        return waiter

    def _new_copy(self) -> int:
        self._next += 1
        return self._next

    def _check_size(self, message: Message) -> None:
        """Refuses too large messages: the broker would close the connection at each resend."""
        require_speakable(message.subject)
        size, most = len(message.data) + len(message.id) + HEADERS, self._connection.max_payload
        if size > most:
            why = f"{size} bytes are more than the {most} that it takes"
            raise BrokerRefused(message.subject, TOO_LARGE, why)

    async def _send(self, lane: _Lane, message: Message, copy: int) -> None:
        # What cannot be sent now (reconnecting, buffer full) is sent again later.
        with contextlib.suppress(NatsError, OSError):
            await self._connection.send(
                message.subject,
                message.data,
                f"{self._inbox}.{lane.kind}-{copy}",
                {"Nats-Msg-Id": message.id},
            )

    async def _on_status(self, answer: Msg) -> None:
        """503: no responders at the moment. The message is sent again."""
        if answer.data:  # an acknowledgement, if the client does not dispatch directly
            self._on_ack(answer.subject.encode(), b"", answer.data)
            return
        lane, copy = self._addressed(answer.subject)
        if (flight := lane.in_flight.refused_for_now(copy, self._now())) is not None:
            flight.unanswered = True
            lane.note_recovery()

    def _on_ack(self, subject: bytes, _reply: bytes, data: bytes) -> None:
        lane, copy = self._addressed(subject.decode())
        refusal = self._decode(data).error
        if refusal is None:
            if (flight := lane.in_flight.acknowledged(copy, self._now())) is not None:
                lane.settle(flight)
                if lane.in_flight.is_recovering:
                    self._look.set()
        elif refusal.passes:
            lane.in_flight.refused_for_now(copy, self._now())
            lane.note_recovery()
        elif (flight := lane.in_flight.of(copy)) is not None:
            self._refuse(lane, flight, refusal.number, refusal.description)

    def _addressed(self, subject: str) -> tuple[_Lane, int]:
        kind, _, copy = subject.rpartition(".")[2].rpartition("-")
        return self._lane(kind), int(copy)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _on_denial(self, denial: Denial) -> None:
        """Refuses the messages of a denied subject, as a resend would be denied too."""
        for lane in self._lanes.values():
            for flight in lane.in_flight.flights():
                if denial.concerns("publish", flight.message.subject):
                    self._refuse(lane, flight, FORBIDDEN, "this user may not publish there")

    def _refuse(self, lane: _Lane, flight: Flight, code: int, why: str) -> None:
        lane.in_flight.leave(flight)
        lane.settle(flight, BrokerRefused(flight.message.subject, code, why))

    async def _resend_for_ever(self) -> None:
        life = self._connection.lives
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._look.wait()
            self._look.clear()
            if not self._connection.is_connected:
                continue
            lost, life = life != self._connection.lives, self._connection.lives
            for lane in list(self._lanes.values()):
                if lost:
                    lane.in_flight.connection_lost(self._now())
                await self._resend(lane)

    async def _resend(self, lane: _Lane) -> None:
        for flight in lane.in_flight.due(self._now()):
            subject = flight.message.subject
            has_no_stream = flight.unanswered and await self._has_no_stream(subject)
            if not lane.in_flight.is_lost(flight):
                continue  # an earlier copy was acknowledged meanwhile
            if has_no_stream:
                self._refuse(lane, flight, STREAM_NOT_FOUND, "no stream takes this subject")
                continue
            copy = self._new_copy()
            lane.in_flight.sent_again(flight, copy)
            lane.sent_again += 1
            metrics.RESENT.inc()
            await self._send(lane, flight.message, copy)
        lane.note_recovery()
        if lane.in_flight.unanswered_s(self._now()) >= IN_VAIN_S:
            self._connection.leave_server("no acknowledgement")

    async def _has_no_stream(self, subject: str) -> bool:
        """A stream without a leader is still listed, and a resend may succeed."""
        try:
            answer = await self._connection.api("STREAM.NAMES", {"subject": subject})
        except (BrokerRefused, Unreachable):
            return False
        return bool(answer["total"] == 0)
