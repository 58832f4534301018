"""Atomic batches under compare-and-set: all of it is stored, or nothing, and by one writer only."""

import secrets
from collections.abc import Sequence

import msgspec

from joulie_bus.codec import open_envelope
from joulie_bus.errors import BrokerRefused, BusError, ExpectationFailed, Unreachable
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.streams import last_on
from joulie_bus.log import MAX_BATCH
from joulie_bus.records import Message
from joulie_bus.subjects import Stream

WRONG_LAST_SEQUENCE = 10071
DUPLICATE_IN_BATCH = 10201  # within the duplicate window this is noticed first


async def append(
    connection: Connection, stream: Stream, messages: Sequence[Message], expected: int
) -> None:
    """Stores all `messages` if the first one's subject is still at sequence `expected` (0: empty).

    A retry of a batch that was stored after all, its acknowledgement lost, counts as stored: the
    broker answers "duplicate" or "wrong last sequence" to it, so we look whether what is there is
    ours.
    """
    if not 0 < len(messages) <= MAX_BATCH:
        raise ValueError(f"a batch holds 1 to {MAX_BATCH} messages, not {len(messages)}")
    try:
        await _send(connection, messages, expected)
    except (ExpectationFailed, Unreachable, BrokerRefused) as error:
        if isinstance(error, BrokerRefused) and error.code != DUPLICATE_IN_BATCH:
            raise
        if not await _is_ours(connection, stream, messages[0]):
            raise


async def _send(connection: Connection, messages: Sequence[Message], expected: int) -> None:
    first = messages[0]
    batch = secrets.token_hex(8)
    for number, message in enumerate(messages, 1):
        headers = {"Nats-Msg-Id": message.id}
        if number == 1:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(expected)
        if len(messages) > 1:
            headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
        is_last = number == len(messages)
        if is_last and len(messages) > 1:
            headers["Nats-Batch-Commit"] = "1"
        if number == 1 or is_last:  # the first tells whether batches work here, the last commits
            reply = await connection.request(message.subject, message.data, headers)
            _check(reply.data, first.subject, expected)
        else:
            await connection.send(message.subject, message.data, headers=headers)


def _check(answer: bytes, subject: str, expected: int) -> None:
    if not answer:
        return  # the broker took a message in the middle of a batch
    refusal = msgspec.json.decode(answer).get("error")
    if refusal is None:
        return
    code = int(refusal.get("err_code", refusal.get("code", 0)))
    if code == WRONG_LAST_SEQUENCE:
        raise ExpectationFailed(subject, expected, str(refusal.get("description", "")))
    raise BrokerRefused(subject, code, str(refusal.get("description", "no reason given")))


async def _is_ours(connection: Connection, stream: Stream, first: Message) -> bool:
    stored = await last_on(connection, stream, first.subject)
    if stored is None:
        return False
    try:
        return open_envelope(stored.data, first.subject).id == first.id
    except BusError:
        return False
