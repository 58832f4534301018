"""Reads a stream through a consumer: for the projector, which gets each message as it is stored.

Messages are pulled, never pushed, and not acknowledged. A message that was lost on its way is
pulled again.

A consumer is on one server, and without a leader of its metadata the broker makes no other. While
it elects one, which takes up to half a minute if two servers do not reach each other, the reader
asks for batches, which every server answers from its own copy. They extend the buffer only behind
the message that was read before, and show no gap and no end of the stream.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from nats.aio.msg import Msg

from joulie_bus.errors import BrokerRefused, StreamGap
from joulie_bus.jetstream.connection import FORBIDDEN
from joulie_bus.jetstream.direct import batch_from
from joulie_bus.jetstream.ordered import PULL, RETRY_S, OrderedReader
from joulie_bus.jetstream.streams import state_of
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.records import Record, digest_of

EXPIRES_S = 2.0
CONSUMERS = 12  # by then each of three servers was chosen, with 99 %
SILENCE_S = EXPIRES_S + 2.0  # a request without messages or expiry by then is lost
PATIENCE_S = 0.5  # with the broker, before batches are read meanwhile
T = TypeVar("T")
log = get_logger("bus")


# Consumer, sequence in the stream, sequence of delivery, time stored, messages after it. A bare
# tuple, as there is one per message.
Ticket = tuple[bytes, int, int, int, int]


def parse_ticket(subject: bytes) -> Ticket:
    """Parses the acknowledgement subject of a message.

    It has 9 tokens in older servers, 11 or more in those that add domain and account.
    """
    parts = subject.split(b".")
    at = 5 if len(parts) == 9 else 7
    sequence, delivery = int(parts[at]), int(parts[at + 1])
    return parts[at - 2], sequence, delivery, int(parts[at + 2]), int(parts[at + 3])


def consumer(name: str, start: int) -> dict[str, Any]:
    """The declaration of a consumer that the broker removes when it is idle."""
    return {
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": start,
        "ack_policy": "none",
        "max_waiting": 8,
        "mem_storage": True,
        "inactive_threshold": 30_000_000_000,
    }


class ConsumerReader(OrderedReader):
    """Its consumer is removed by the broker when it is idle."""

    _consumer = b""
    _server = ""  # whose copy it reads
    _looked: tuple[float, int, int] = (0.0, 0, 0)  # when, the position, and the end of the stream
    _is_idle = False  # a request expired without a message since then
    _deliveries = 0  # of this consumer, without gaps
    _credit = 0  # messages requested that have neither arrived nor expired

    def _subscribed(self) -> contextlib.AbstractAsyncContextManager[None]:
        return self._connection.subscribed(f"{self._inbox}.*", self._on_status, self._on_pulled)

    @property
    def _wants_more(self) -> bool:
        return self._credit <= PULL and len(self._buffer) <= PULL

    async def _begin(self) -> None:
        """The broker chooses the server at random, so creates consumers until one is of use."""
        self._broken = False
        self._life = self._connection.lives
        self._received_at = self._clock()
        for _ in range(CONSUMERS):
            first = await self._create(self.position)
            wanted = self.position + 1  # batches were read while the consumer was made
            if first > wanted:
                self._lacks(wanted, first)
                self._require_a_copy()
            if not self._copies.are_useless(self._server, wanted):
                return
        self._broken = True  # the servers that may have it do not answer now

    async def _create(self, position: int) -> int:
        """Creates a consumer; returns the sequence at which it begins."""
        name = f"joulie-{secrets.token_hex(6)}"
        self._consumer = name.encode()
        self._deliveries = 0
        self._credit = 0
        config = consumer(name, max(1, position))
        verb = f"CONSUMER.CREATE.{self.stream}.{name}"
        asked = {"stream_name": str(self.stream), "config": config}
        try:
            made = await self._connection.api(verb, asked)
        except BrokerRefused as refusal:
            if refusal.code == FORBIDDEN and self._connection.address.direct:
                # The users got accounts since: the next reader may get directly.
                self._fail(refusal)
            raise
        self._server = (made.get("cluster") or {}).get("leader", "")
        return int(made["delivered"]["stream_seq"]) + 1

    def _lacks(self, wanted: int, first: int) -> None:
        self._copies.lack(self._server, wanted, first)
        if self._copies.are_several:
            self._connection.gaps[self._server, self.stream] = wanted

    def _on_gap(self, first: int) -> None:
        wanted = self.position + 1
        self._lacks(wanted, first)
        if self._copies.all_lack(wanted):
            self._fail(StreamGap(self.stream, wanted, self._copies.first_after(wanted)))

    @property
    def _is_silent(self) -> bool:
        waited = self._clock() - self._received_at
        return self._credit > 0 and waited > SILENCE_S

    async def _ask_if_there_is_room(self) -> None:
        if self._is_idle and self._copies.are_several:
            await self._compare_ends()
        if not self._wants_more or self._broken:
            return
        if not self._credit:
            self._received_at = self._clock()
        request = {"batch": PULL, "expires": int(EXPIRES_S * 1e9)}
        consumer = self._consumer.decode()
        verb = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{consumer}"
        reply = f"{self._inbox}.{consumer}"
        self._credit += PULL
        await self._connection.send(verb, msgspec.json.encode(request), reply)

    async def _compare_ends(self) -> None:
        """The end of a copy is not the end of the stream if the leader holds more."""
        at, position, last = self._looked
        if self._clock() - at < EXPIRES_S / 2:
            return
        self._is_idle = False
        if position == self.position < last:
            self._copies.are_late(self._server, self.position + 1)
            self._broken = True
            self._wake.set()
        end = (await self._waiting_for(state_of(self._connection, self.stream))).last
        self._looked = (self._clock(), self.position, end)

    async def _waiting_for(self, asking: Coroutine[Any, Any, T]) -> T:
        asked, patience_s, before = asyncio.ensure_future(asking), PATIENCE_S, self.position
        try:
            while not (await asyncio.wait([asked], timeout=patience_s))[0]:
                await self._read_batch()
                patience_s = RETRY_S
            return await asked
        finally:
            asked.cancel()
            if patience_s == RETRY_S and self.position > before:
                log.info("read_meanwhile", stream=self.stream, first=before + 1, last=self.position)

    async def _read_batch(self) -> None:
        self._update_digest()
        at, digest = self.position, self.digest
        is_comparable = bool(digest) or not at  # or nothing was read of this stream yet
        if not (is_comparable and len(self._buffer) <= PULL):
            return
        try:
            found = await batch_from(self._connection, self.stream, at)
        except BrokerRefused:
            return
        if at and not (found and found[0][0].sequence == at and digest_of(found[0][0]) == digest):
            return  # a copy that is late or has a hole, or of another stream
        for record, pending in found:
            if record.sequence > self.position + 1:
                return  # a hole of this copy
            if record.sequence == self.position + 1:  # the consumer may have been faster
                self._append(record, max(pending, self._leader.last - record.sequence))

    def _on_pulled(self, subject: bytes, reply: bytes, data: bytes) -> None:
        consumer, sequence, delivery, at, pending = parse_ticket(reply)
        if consumer != self._consumer:
            return  # from a consumer that was replaced
        self._received_at = self._clock()
        self._credit -= 1
        if delivery != self._deliveries + 1:
            self._broken = True  # a message was lost on the way: read again from the position
            return
        self._deliveries = delivery
        text = subject.decode(errors="backslashreplace")  # a subject may hold any bytes
        self._accept(Record(self.stream, sequence, at, data, text), pending)

    async def _on_status(self, message: Msg) -> None:
        """Messages come here too if the client does not dispatch them directly."""
        if message.reply:
            self._on_pulled(message.subject.encode(), message.reply.encode(), message.data)
            return
        if not message.subject.encode().endswith(self._consumer):
            return  # to a consumer that was replaced
        self._received_at = self._clock()
        headers = message.headers or {}
        status = headers.get("Status", "")
        if status in ("404", "408"):  # no messages, or the request expired
            self._is_idle = True
            self._credit = max(0, self._credit - int(headers.get("Nats-Pending-Messages", PULL)))
        elif status:  # 409 consumer deleted, 503 no responders
            self._broken = True
