"""Searches the copies of the streams for holes, server by server.

The broker neither reports a hole nor names the server that answers. A consumer without replicas is
an exception: it is on one server, chosen at random, which is named and counts the messages of its
own copy. Messages are numbered without gaps and never deleted singly, so each copy has to hold as
many as there are numbers.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from nats.aio.msg import Msg

from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.reader import consumer, parse_ticket
from joulie_bus.jetstream.streams import state_of
from joulie_bus.streams.records import IncompleteCopy, StreamState
from joulie_bus.streams.subjects import Stream

TRIES = 3  # consumers per stream and round, until one is on a server that was not examined yet
ANSWER_S = 1.0
IDLE_NS = 1_000_000_000
OLDEST = 20  # one in so many of the oldest messages of JOULIE_TEL may just be dropped


class Counted(NamedTuple):
    server: str
    consumer: str
    held: int


def missing_in(counted: Counted, before: StreamState, after: StreamState) -> int:
    """How many messages a copy lacks that was counted between two looks at the stream.

    None of a copy that is late: it gets the rest by itself, and a new store would be in vain.
    """
    if counted.server in {*before.late, *after.late}:
        return 0
    expected = before.last + 1 - max(_start(before), after.first)
    return max(0, expected - counted.held)


class HoleSearch:
    """Each `round` examines at least one copy of each stream; some rounds examine all of them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._examined: dict[Stream, set[str]] = {}
        self._suspected: dict[tuple[str, Stream], int] = {}  # missing, at the last look
        self._found: dict[tuple[str, Stream], int] = {}  # missing, at the last two looks

    async def round(self) -> Sequence[IncompleteCopy]:
        """The copies that lack messages, as far as they were examined."""
        for stream in Stream:
            state = await state_of(self._connection, stream)
            if len(state.servers) > 1 and state.holds_messages:
                await self._examine(stream, state)
                await self._read_again(stream)
        read = dict.fromkeys(self._connection.gaps, 1)
        return [
            IncompleteCopy(*key, missing) for key, missing in sorted((read | self._found).items())
        ]

    async def _examine(self, stream: Stream, state: StreamState) -> None:
        examined = self._examined.setdefault(stream, set())
        if examined >= set(state.servers):
            examined.clear()
        for _ in range(TRIES):
            counted = await self._count(stream, _start(state))
            await self._judge(counted, state)
            if counted.server not in examined:
                examined.add(counted.server)
                return

    async def _judge(self, counted: Counted, before: StreamState) -> None:
        """Believes the second of two looks: a copy may be some messages behind the leader."""
        after = await state_of(self._connection, before.stream)
        missing, key = missing_in(counted, before, after), (counted.server, before.stream)
        repeated = min(missing, self._suspected.get(key, 0))
        self._suspected[key] = missing
        self._found.pop(key, None)
        if repeated:
            self._found[key] = repeated

    async def _read_again(self, stream: Stream) -> None:
        """Forgets what a reader found if the server has the message by now."""
        for server, which in list(self._connection.gaps):
            if which != stream:
                continue
            wanted = self._connection.gaps[server, which]
            for _ in range(TRIES):
                counted = await self._count(stream, wanted)
                if counted.server == server:
                    if await self._first(stream, counted) == wanted:
                        self._connection.gaps.pop((server, which), None)
                    break

    async def _count(self, stream: Stream, start: int) -> Counted:
        name = f"joulie-look-{secrets.token_hex(6)}"
        config = consumer(name, start) | {"inactive_threshold": IDLE_NS}
        body = {"stream_name": str(stream), "config": config}
        made = await self._connection.api(f"CONSUMER.CREATE.{stream}.{name}", body)
        server = (made.get("cluster") or {}).get("leader", "")
        return Counted(server, name, made["num_pending"])

    async def _first(self, stream: Stream, counted: Counted) -> int:
        """The sequence of the first message that the consumer delivers; 0 if there is none.

        A server that counts a message and cannot read it delivers a later one or none.
        """
        inbox, answers = self._connection.new_inbox(), asyncio.Queue[str]()

        async def on_answer(message: Msg) -> None:
            answers.put_nowait(message.reply)  # empty for a status

        verb = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{counted.consumer}"
        request = msgspec.json.encode({"batch": 1, "expires": int(ANSWER_S / 2 * 1e9)})
        async with self._connection.subscribed(inbox, on_answer):
            await self._connection.send(verb, request, inbox)
            try:
                async with asyncio.timeout(ANSWER_S):
                    ticket = await answers.get()
            except TimeoutError:
                return 0
        return parse_ticket(ticket.encode())[1] if ticket else 0


def _start(state: StreamState) -> int:
    """JOULIE_TEL drops old messages, and each server does that in its own time."""
    first = max(1, state.first)
    return first + (state.last - first) // OLDEST if state.stream is Stream.TEL else first
