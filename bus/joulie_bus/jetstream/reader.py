"""Reads a stream through a consumer: for the projector, which gets each message as it is stored.

Messages are pulled, never pushed, and not acknowledged. A message that was lost on its way is
pulled again.
"""

import contextlib
import secrets

import msgspec
from nats.aio.msg import Msg

from joulie_bus.jetstream.ordered import PULL, OrderedReader
from joulie_bus.streams.records import Record

EXPIRES_S = 2.0
SILENCE_S = EXPIRES_S + 2.0  # a request without messages or expiry by then is lost


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


class Reader(OrderedReader):
    """Its consumer is removed by the broker when it is idle."""

    _consumer = b""
    _deliveries = 0  # of this consumer, without gaps
    _credit = 0  # messages requested that have neither arrived nor expired

    def _subscribed(self) -> contextlib.AbstractAsyncContextManager[None]:
        return self._connection.subscribed(f"{self._inbox}.*", self._on_status, self._on_pulled)

    @property
    def _wants_more(self) -> bool:
        return self._credit <= PULL and len(self._buffer) <= PULL

    async def _begin(self) -> None:
        name = f"joulie-{secrets.token_hex(6)}"
        self._consumer = name.encode()
        self._deliveries = 0
        self._credit = 0
        self._broken = False
        self._life = self._connection.lives
        self._received_at = self._clock()
        config = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(1, self.position),
            "ack_policy": "none",
            "max_waiting": 8,
            "mem_storage": True,
            "inactive_threshold": 30_000_000_000,
        }
        verb = f"CONSUMER.CREATE.{self.stream}.{name}"
        await self._connection.api(verb, {"stream_name": str(self.stream), "config": config})

    @property
    def _is_silent(self) -> bool:
        waited = self._clock() - self._received_at
        return self._credit > 0 and waited > SILENCE_S

    async def _ask_if_there_is_room(self) -> None:
        if not self._wants_more:
            return
        if not self._credit:
            self._received_at = self._clock()
        request = {"batch": PULL, "expires": int(EXPIRES_S * 1e9)}
        consumer = self._consumer.decode()
        verb = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{consumer}"
        reply = f"{self._inbox}.{consumer}"
        self._credit += PULL
        await self._connection.send(verb, msgspec.json.encode(request), reply)

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
            self._credit = max(0, self._credit - int(headers.get("Nats-Pending-Messages", PULL)))
        elif status:  # 409 consumer deleted, 503 no responders
            self._broken = True
