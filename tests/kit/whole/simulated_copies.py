"""Three copies of each stream, and JetStream's consumers over them, for the real reader and search.

A damaged copy lacks messages. Its server counts them neither in a consumer nor when it reads, goes
on with what follows, and reports nothing.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bus_kit.memory_broker import MemoryBroker
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

if TYPE_CHECKING:
    from simulated_broker import LinkedLog

SERVERS = ("nats-1", "nats-2", "nats-3")
LEADER = SERVERS[1]
DAMAGED = SERVERS[0]
DIRECT_GET = "$JS.API.DIRECT.GET."
BEFORE, AFTER = 3, 6  # messages that a damaged block held, and that are still stored in it


class Copies:
    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._lost: dict[Stream, range] = {}  # of the damaged server
        self._leads = asyncio.Event()  # a leader of the metadata
        self._leads.set()
        self.connections: list[CopiesConnection] = []

    def damage(self, stream: Stream) -> None:
        last = self._broker.stream(stream).last
        self._lost[stream] = range(max(1, last - BEFORE), last + AFTER)

    def elect(self) -> None:
        """No leader makes consumers, and those that exist are out of reach."""
        self._leads.clear()
        for connection in self.connections:
            connection.lose_consumers()

    async def require_leader(self) -> None:
        await self._leads.wait()

    def heal(self) -> None:
        """The store of that server was deleted, and filled by the others."""
        self._lost.clear()
        self._leads.set()

    @property
    def damaged(self) -> list[tuple[str, Stream]]:
        """Of those that were stored: what a search can find."""
        return [
            (DAMAGED, stream)
            for stream, lost in self._lost.items()
            if lost.start <= self._broker.stream(stream).last
        ]

    def held(self, server: str, stream: Stream, after: int) -> list[Record]:
        lost = self._lost.get(stream, range(0)) if server == DAMAGED else range(0)
        found = self._broker.stream(stream).after(after)
        return [record for record in found if record.sequence not in lost]


class _Status(NamedTuple):
    """As nats-py gives a message to a handler."""

    subject: str
    reply: str = ""
    data: bytes = b""
    headers: Mapping[str, str] | None = None


def headers_of(record: Record, pending: int, before: int) -> bytes:
    """What a server adds to a message that it gets from its copy."""
    at = datetime.fromtimestamp(record.at // 10**9, UTC)
    lines = (
        "NATS/1.0",
        f"Nats-Subject: {record.subject}",
        f"Nats-Sequence: {record.sequence}",
        f"Nats-Time-Stamp: {at:%Y-%m-%dT%H:%M:%S}.{record.at % 10**9:09}Z",
        f"Nats-Num-Pending: {pending}",
        f"Nats-Last-Sequence: {before}",
    )
    return "\r\n".join((*lines, "", "")).encode()


Handler = Callable[[Any], Coroutine[Any, Any, None]]
Receiver = Callable[[bytes, bytes, bytes], None]


class _Pull:
    def __init__(self, reply: str, left: int) -> None:
        self.reply = reply
        self.left = left


class _Consumer:
    """On one server, of whose copy it reads."""

    def __init__(self, name: str, server: str, stream: Stream, after: int) -> None:
        self.name = name
        self.server = server
        self.stream = stream
        self.after = after
        self.delivered = 0
        self.pulls: deque[_Pull] = deque()

    def due(self, copies: Copies) -> Iterator[tuple[str, bytes, Record]]:
        """What it sends now: to which inbox, with which ticket."""
        found = copies.held(self.server, self.stream, self.after) if self.pulls else []
        for number, record in enumerate(found):
            while self.pulls and not self.pulls[0].left:
                self.pulls.popleft()
            if not self.pulls:
                return
            self.pulls[0].left -= 1
            self.after, self.delivered = record.sequence, self.delivered + 1
            place = f"{record.sequence}.{self.delivered}.{record.at}.{len(found) - number - 1}"
            ticket = f"$JS.ACK.{self.stream}.{self.name}.1.{place}"
            yield self.pulls[0].reply, ticket.encode(), record


class CopiesConnection:
    """What the reader and the search use of a connection."""

    def __init__(self, log: "LinkedLog", copies: Copies, rng: random.Random) -> None:
        self.gaps: dict[tuple[str, Stream], int] = {}
        self.lives = 1
        self._log = log
        self._copies = copies
        self._rng = rng
        self._inboxes = 0
        self._consumers: dict[str, _Consumer] = {}
        self._subscribed: dict[str, tuple[Handler, Receiver | None]] = {}
        copies.connections.append(self)

    def lose_consumers(self) -> None:
        self._consumers.clear()

    def new_inbox(self) -> str:
        self._inboxes += 1
        return f"_INBOX.{self._inboxes}"

    @contextlib.asynccontextmanager
    async def subscribed(
        self,
        subject: str,
        handler: Handler,
        receiver: Receiver | None = None,
        *,
        with_headers: bool = False,
    ) -> AsyncGenerator[None, None]:
        """A receiver of direct gets has the headers in place of the reply."""
        inbox = subject.removesuffix(".*")
        self._subscribed[inbox] = handler, receiver
        try:
            yield
        finally:
            del self._subscribed[inbox]

    def reporting_denials(self, _: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # this user may do all that it does

    async def api(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return await self._log.asked(lambda: self._answer(verb, body or {}))

    async def _answer(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        if verb.startswith("CONSUMER.CREATE"):
            await self._copies.require_leader()
            return self._create(body)
        stream = Stream(verb.removeprefix("STREAM.INFO."))
        kept = self._log.server.broker.stream(stream)
        replicas = [{"name": name} for name in SERVERS if name != LEADER]
        return {
            "created": kept.created,
            "state": {"first_seq": kept.first, "last_seq": kept.last},
            "cluster": {"leader": LEADER, "replicas": replicas},
        }

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        name, start = body["config"]["name"], body["config"]["opt_start_seq"]
        stream, server = Stream(body["stream_name"]), self._rng.choice(SERVERS)
        after = max(start, self._log.server.broker.stream(stream).first) - 1
        self._consumers[name] = _Consumer(name, server, stream, after)
        pending = len(self._copies.held(server, stream, after))
        return {
            "cluster": {"leader": server},
            "delivered": {"stream_seq": after},
            "num_pending": pending,
        }

    async def send(self, subject: str, data: bytes, reply: str) -> None:
        """A request of a consumer for messages, or to any server for what its copy holds."""
        if not await self._log.arrives():
            return
        name, asked = subject.split(".")[-1], msgspec.json.decode(data)
        if subject.startswith(DIRECT_GET):
            self._get(Stream(name), asked, reply)
        elif known := self._consumers.get(name):
            pull = _Pull(reply, asked["batch"])
            known.pulls.append(pull)
            self._deliver(known)
            loop = asyncio.get_running_loop()
            loop.call_later(asked["expires"] / 1e9, self._expire, known, pull)

    def _get(self, stream: Stream, asked: dict[str, int], reply: str) -> None:
        held = self._copies.held(self._rng.choice(SERVERS), stream, asked["seq"] - 1)
        before = 0
        for number, record in enumerate(held[: asked["batch"]], 1):
            headers = headers_of(record, len(held) - number, before)
            self._log.later(self._arrive, reply, headers, record)
            before = record.sequence
        end = Record(stream, 0, 0, b"", "")  # a status has no message
        self._log.later(self._arrive, reply, b"NATS/1.0 204 EOB\r\n\r\n", end)

    def stored(self, stream: Stream) -> None:
        for consumer in self._consumers.values():
            if consumer.stream is stream:
                self._deliver(consumer)

    def _deliver(self, consumer: _Consumer) -> None:
        for reply, ticket, record in consumer.due(self._copies):
            self._log.later(self._arrive, reply, ticket, record)

    def _arrive(self, reply: str, ticket: bytes, record: Record) -> None:
        handler, receiver = self._handlers_of(reply)
        if receiver is not None:
            receiver(record.subject.encode(), ticket, record.data)
        elif handler is not None:
            message = _Status(record.subject, ticket.decode(), record.data)
            self._log.run(handler(message))

    def _expire(self, consumer: _Consumer, pull: _Pull) -> None:
        if pull not in consumer.pulls:
            return
        consumer.pulls.remove(pull)
        headers = {"Status": "408", "Nats-Pending-Messages": str(pull.left)}
        self._log.later(self._end, _Status(pull.reply, headers=headers))

    def _end(self, status: _Status) -> None:
        handler, _ = self._handlers_of(status.subject)
        if handler is not None:
            self._log.run(handler(status))

    def _handlers_of(self, reply: str) -> tuple[Handler | None, Receiver | None]:
        """Nothing arrives over a link that is cut, or for a subscription that ended."""
        inbox = ".".join(reply.split(".")[:2])
        known = self._subscribed.get(inbox) if self._log.is_connected else None
        return known or (None, None)
