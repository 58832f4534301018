"""Messages that could not be folded: how to show and how to retry them."""

from typing import Any

import msgspec

from joulie_bus.errors import NotRetryable, Undecodable
from joulie_bus.events import codec
from joulie_bus.streams.authority import is_refusal
from joulie_bus.streams.records import Message
from joulie_bus.streams.subjects import Stream, Subjects, stream_of
from joulie_projections.fold.commit import Poison
from joulie_projections.fold.quarantine_quota import is_single


def to_readable(body: bytes) -> Any:
    """The body as JSON values, decoded as far as possible: event, envelope, MessagePack, or hex."""
    try:
        return msgspec.json.decode(codec.to_json(codec.open_envelope(body, "it")))
    except (Undecodable, msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError):
        pass
    try:
        return msgspec.to_builtins(msgspec.msgpack.decode(body), str_keys=True)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError):
        return {"bytes": body.hex()}


def retry_message(poison: Poison, subjects: Subjects) -> Message:
    """The same fact as a new message, which gets a new position; replays include it.

    The event id stays, so that a fact is never counted twice. The message id changes, because the
    broker drops a message with a known one.
    """
    at = f"position {poison.position}"
    if is_refusal(poison.why):
        raise NotRetryable(
            f"The message at {at} was refused, because its sender may not write it. Nothing was "
            f"sent: a retry would come from a sender that may. If the message is legitimate, give "
            f"its sender the role or the subject that docs/security.md names, and let it report "
            f"again."
        )
    if not is_single(poison):
        raise NotRetryable(
            f"The message at {at} was one of many, and its body was not kept. Nothing was sent. "
            f"Its producer, or a client that can read {poison.stream}, may send it again."
        )
    try:
        envelope = codec.open_envelope(poison.body, at)
        producer = codec.origin_of(envelope.id, at).producer
        event = codec.read(envelope, at)
    except Undecodable as error:
        raise NotRetryable(
            f"The message at {at} still cannot be read: {error.why}. Nothing was sent; it would "
            f"end in quarantine again. Try again with a version of joulie that can decode it."
        ) from error
    if stream_of(event) is Stream.DEC:
        raise NotRetryable(
            f"The message at {at} is a decision in a stream of facts. Nothing was sent: decisions "
            f"are not folded."
        )
    if stream_of(event) != poison.stream:
        raise NotRetryable(
            f"The message at {at} was stored in {poison.stream}, and {event.TYPE} belongs in "
            f"{stream_of(event)}. Nothing was sent; its sender may not write there."
        )
    return Message(subjects.of(event, producer), f"retry:{poison.position}", poison.body)
