"""Atomic batches: all messages are stored or none, optionally under compare-and-set.

The broker syncs its disk once for a batch, and once for each single message.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from enum import Enum, auto

import msgspec
from nats.errors import Error as NatsError

from joulie_bus.core.backoff import Backoff
from joulie_bus.errors import BrokerRefused, BusError, ExpectationFailed, Unreachable
from joulie_bus.events.codec import open_envelope
from joulie_bus.jetstream.connection import API_TIMEOUT_S, Connection
from joulie_bus.jetstream.streams import last_on
from joulie_bus.log.answered import TEMPORARY
from joulie_bus.log.protocol import require_appendable
from joulie_bus.runtime.logging import get_logger
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
WRONG_LAST_SEQUENCE = 10071
ANSWER_S = API_TIMEOUT_S
LOOK_S = 0.25  # without an answer after this time, check the connection
DUPLICATE_IN_BATCH = 10201  # within the duplicate window the broker reports this first
TOO_MANY_BATCHES = 10210  # of all writers of the stream (`batch_limits`)
ROOM_S = 2.0  # how long to wait for batches of others to end
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.05
log = get_logger("bus")


async def append(
    connection: Connection,
    stream: Stream,
    messages: Sequence[Message],
    expected: Mapping[str, int],
) -> None:
    """Stores all `messages` if each subject in `expected` is still at its sequence (0: empty).

    A retry succeeds if the batch was stored and only its acknowledgement was lost. The broker then
    answers "duplicate" or "wrong last sequence", so the id of the stored message is compared.
    """
    require_appendable(messages, expected)
    try:
        await _send_once_there_is_room(connection, messages, expected)
    except (ExpectationFailed, Unreachable, BrokerRefused) as error:
        if isinstance(error, BrokerRefused) and error.code != DUPLICATE_IN_BATCH:
            raise
        if not await _is_ours(connection, stream, messages[0]):
            raise


class Together(Enum):
    """What became of a batch."""

    STORED = auto()
    NOT_NOW = auto()  # some of them are stored already, or the broker refuses all for the moment
    REFUSED = auto()  # the stream takes no batches
    UNKNOWN = auto()  # no answer


async def stored_together(connection: Connection, messages: Sequence[Message]) -> Together:
    """Stores messages of one stream in order, with a single sync of the broker's disk.

    If they are not stored, the caller sends them again; the broker removes duplicates.
    """
    life = connection.lives
    storing = asyncio.create_task(_committed(connection, messages))
    try:
        while connection.is_connected and connection.lives == life:
            done, _ = await asyncio.wait({storing}, timeout=LOOK_S)
            if done:
                return storing.result()
    finally:
        storing.cancel()
    return Together.UNKNOWN  # the broker discards a batch whose connection was lost


async def _committed(connection: Connection, messages: Sequence[Message]) -> Together:
    try:
        count = await _send(connection, messages, {})
    except BrokerRefused as refusal:
        if refusal.code in (DUPLICATE_IN_BATCH, *TEMPORARY):
            return Together.NOT_NOW
        log.warning(
            "batch_refused",
            subject=messages[0].subject,
            messages=len(messages),
            why=str(refusal),
            meanwhile="messages are sent one by one for a minute",
        )
        return Together.REFUSED
    except (BusError, NatsError, OSError):
        return Together.UNKNOWN
    # A broker without batches stores each message and returns no count.
    return Together.STORED if count == len(messages) else Together.REFUSED


async def _send_once_there_is_room(
    connection: Connection, messages: Sequence[Message], expected: Mapping[str, int]
) -> None:
    """The broker takes few batches of a stream at once, and each of them ends soon."""
    clock = asyncio.get_running_loop().time
    until, pause = clock() + ROOM_S, Backoff(SHORTEST_PAUSE_S, LONGEST_PAUSE_S)
    while True:
        try:
            await _send(connection, messages, expected)
        except BrokerRefused as refusal:
            if refusal.code != TOO_MANY_BATCHES or clock() > until:
                raise
            await asyncio.sleep(pause.failed())
        else:
            return


def _headers(messages: Sequence[Message], expected: Mapping[str, int]) -> list[dict[str, str]]:
    """The first message on each subject carries its expectation; the last message commits."""
    unguarded = dict(expected)
    batch = secrets.token_hex(8)
    made = []
    for number, message in enumerate(messages, 1):
        headers = {"Nats-Msg-Id": message.id}
        if message.subject in unguarded:
            headers[EXPECTED] = str(unguarded.pop(message.subject))
        if len(messages) > 1:
            headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
        made.append(headers)
    if len(messages) > 1:
        made[-1]["Nats-Batch-Commit"] = "1"
    return made


async def _send(
    connection: Connection, messages: Sequence[Message], expected: Mapping[str, int]
) -> int:
    """The first reply shows whether batches work, the last one whether all are stored.

    Returns how many messages the broker stored together.
    """
    headers, count = _headers(messages, expected), 0
    for number, (message, head) in enumerate(zip(messages, headers, strict=True)):
        if 0 < number < len(messages) - 1:
            await connection.send(message.subject, message.data, headers=head)
        else:
            reply = await connection.request(message.subject, message.data, head, ANSWER_S)
            count = _checked(reply.data, message.subject, expected)
    return count


def _checked(answer: bytes, subject: str, expected: Mapping[str, int]) -> int:
    if not answer:
        return 0  # accepted within a batch
    decoded = msgspec.json.decode(answer)
    refusal = decoded.get("error")
    if refusal is None:
        return int(decoded.get("count", 0))
    code = int(refusal.get("err_code", refusal.get("code", 0)))
    if code == WRONG_LAST_SEQUENCE:
        raise ExpectationFailed(expected, str(refusal.get("description", "")))
    raise BrokerRefused(subject, code, str(refusal.get("description", "no reason given")))


async def _is_ours(connection: Connection, stream: Stream, first: Message) -> bool:
    stored = await last_on(connection, stream, first.subject)
    if stored is None:
        return False
    try:
        return open_envelope(stored.data, first.subject).id == first.id
    except BusError:
        return False
