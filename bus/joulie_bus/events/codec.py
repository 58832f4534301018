"""Events to bytes and back: MessagePack on the wire, JSON for people.

The envelope is decoded first; its `data` stays raw until it is needed.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import inspect

from joulie_bus.errors import OutOfBounds, Undecodable
from joulie_bus.events import (
    EVENT_TYPES,
    AnyEvent,
    FilterDecided,
    PreemptDecided,
    PrioritizeDecided,
    TelemetrySampled,
)
from joulie_bus.events.bounds import (
    BOOT,
    EVENT_ID,
    NAME,
    PRODUCER,
    SEQ_DIGITS,
    EventId,
    Nanoseconds,
    Sha256,
    control_in,
)
from joulie_bus.events.packing import packing_flaw

Key = Annotated[str, msgspec.Meta(max_length=NAME)]
Version = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The producer, time and cause of an event; `data` is the event itself.

    `prev` is the first field, so that it lies at the same place in each message that has it.
    """

    # The SHA-256 of the last message that this producer has published before, if it promises its
    # messages: see `joulie_projections.chain.promise`.
    prev: Sha256 = b""
    id: EventId  # producer:boot:seq, unique; also the broker's message id
    type: Key
    v: Version
    key: Key
    ts: Nanoseconds  # the producer's wall clock, ns; for people, never for order
    cause: EventId = ""  # id of the event that led to this one
    corr: Key = ""  # groups related events: a pod's uid, a plan's id
    data: msgspec.Raw


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An envelope of current telemetry, decoded in one step. Nearly all messages are telemetry."""

    id: EventId
    type: Literal["telemetry.sampled"]
    v: Literal[1]
    key: Key
    ts: Nanoseconds
    cause: EventId = ""
    corr: Key = ""
    data: TelemetrySampled


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The three parts of an event's id."""

    producer: str
    boot: str
    seq: int


# (type, old version) -> the same event one version later, as plain data. Never removed.
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTERS: dict[tuple[str, int], Upcaster] = {}

_CURRENT = {cls.TYPE: cls for cls in EVENT_TYPES}
_DECODERS = {cls.TYPE: msgspec.msgpack.Decoder(cls) for cls in EVENT_TYPES}
_encode = msgspec.msgpack.Encoder().encode
_decode_envelope = msgspec.msgpack.Decoder(Envelope).decode
_decode_sample = msgspec.msgpack.Decoder(Sample).decode
_decode_plain = msgspec.msgpack.Decoder(dict[str, Any]).decode


def encode(event: AnyEvent) -> bytes:
    """Encodes an event. Raises OutOfBounds if readers would refuse it.

    Also refuses NaN and infinity, which JSON would turn into null.
    """
    try:
        if event.TYPE in _WITH_FLOATS:
            refuse_non_finite(event)
        data = _encode(event)
        _DECODERS[event.TYPE].decode(data)
    except (msgspec.ValidationError, ValueError, TypeError, OverflowError) as error:
        raise OutOfBounds(event.TYPE, str(error)) from error
    if flaw := _flaw_of(event):
        raise OutOfBounds(event.TYPE, flaw)
    return data


def seal(envelope: Envelope) -> bytes:
    return _encode(envelope)


def require_fitting(envelope: Envelope) -> None:
    """Raises OutOfBounds for an envelope that readers would refuse."""
    event_id, key, cause, corr = envelope.id, envelope.key, envelope.cause, envelope.corr
    if max(len(event_id), len(cause)) > EVENT_ID or max(len(key), len(corr)) > NAME:
        raise OutOfBounds(envelope.type, "its id, key, cause or correlation is too long")
    if not "".join((event_id, key, cause, corr)).isprintable() and control_in(envelope):
        raise OutOfBounds(envelope.type, _has_control(control_in(envelope)))


def open_envelope(data: bytes, where: str) -> Envelope:
    try:
        envelope = _decode_envelope(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(where, str(error)) from error
    if field := control_in(envelope):
        raise Undecodable(where, _has_control(field))
    return envelope


def open_sample(data: bytes) -> Sample | None:
    """Decodes telemetry in half the time; None for any message that needs the two steps."""
    try:
        sample = _decode_sample(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    said = sample.data
    texts = (
        sample.id,
        sample.key,
        sample.cause,
        sample.corr,
        said.node,
        said.provider,
        *said.card_mw,
        *said.pod_uj,
    )
    return sample if "".join(texts).isprintable() else None


def read(envelope: Envelope, where: str) -> AnyEvent:
    """The event in an envelope, upcast to the current version."""
    decoder = _DECODERS.get(envelope.type)
    if decoder is None:
        raise Undecodable(where, f"this version of Joulie has no event type {envelope.type!r}")
    try:
        if envelope.v == _CURRENT[envelope.type].VERSION:
            event = decoder.decode(envelope.data)
        else:
            event = msgspec.convert(_upcast(envelope, where), _CURRENT[envelope.type])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(where, f"{envelope.type} v{envelope.v}: {error}") from error
    if flaw := _flaw_of(event):
        raise Undecodable(where, f"{envelope.type} v{envelope.v}: {flaw}")
    return event


def decoded(data: bytes, where: str) -> AnyEvent:
    """The event in the bytes of a message."""
    return read(open_envelope(data, where), where)


def _flaw_of(event: AnyEvent) -> str:
    """What the schema of the event cannot refuse."""
    if field := control_in(event):
        return _has_control(field)
    if isinstance(event, FilterDecided | PreemptDecided | PrioritizeDecided):
        return packing_flaw(event)
    return ""


def _has_control(field: str) -> str:
    return f"{field} has a control character"


def _upcast(envelope: Envelope, where: str) -> dict[str, Any]:
    data, version = _decode_plain(envelope.data), envelope.v
    while version != _CURRENT[envelope.type].VERSION:
        step = UPCASTERS.get((envelope.type, version))
        if step is None:
            raise Undecodable(
                where, f"this version of Joulie reads no version {version} of {envelope.type}"
            )
        data, version = step(data), version + 1
    return data


def origin_of(event_id: str, where: str) -> Origin:
    producer, _, rest = event_id.partition(":")
    boot, _, seq = rest.partition(":")
    is_number = seq.isascii() and seq.isdigit() and len(seq) <= SEQ_DIGITS
    if not (0 < len(producer) <= PRODUCER and 0 < len(boot) <= BOOT and is_number):
        raise Undecodable(where, f"the id {event_id!r} is not producer:boot:seq")
    return Origin(producer, boot, int(seq))


def to_json(envelope: Envelope) -> bytes:
    """The envelope with its data decoded, as JSON for people."""
    return msgspec.json.encode(_decode_plain(seal(envelope)))


def refuse_non_finite(value: object) -> None:
    """Raises ValueError for NaN and infinity: a log that is summed, compared and shown as JSON must
    not contain them."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a number that an event may hold")
    if not isinstance(value, msgspec.Struct):
        for part in _parts(value):
            refuse_non_finite(part)
        return
    numbers, others = _suspects(type(value))
    # A finite sum means that all are finite; otherwise look for the value that is not.
    if numbers is not None and not math.isfinite(sum(numbers(value))):
        for part in numbers(value):
            refuse_non_finite(part)
    for name in others:
        refuse_non_finite(getattr(value, name))


_WITHOUT_FLOATS = (
    inspect.IntType,
    inspect.StrType,
    inspect.BytesType,
    inspect.BoolType,
    inspect.NoneType,
    inspect.LiteralType,
)


def _holds_floats(kind: inspect.Type) -> bool:
    match kind:
        case inspect.StructType():
            return any(_holds_floats(field.type) for field in kind.fields)
        case inspect.UnionType():
            return any(_holds_floats(part) for part in kind.types)
        case inspect.DictType():
            return _holds_floats(kind.value_type)
        case inspect.ListType() | inspect.VarTupleType():
            return _holds_floats(kind.item_type)
        case _:
            return not isinstance(kind, _WITHOUT_FLOATS)


# Most event types have no float fields, so there is nothing to check.
_WITH_FLOATS = frozenset(cls.TYPE for cls in EVENT_TYPES if _holds_floats(inspect.type_info(cls)))


def _parts(value: object) -> Iterable[object]:
    match value:
        case dict():
            return value.values()
        case list() | tuple():
            return value
        case _:
            return ()


@lru_cache
def _suspects(
    cls: type[msgspec.Struct],
) -> tuple[Callable[[object], tuple[float, ...]] | None, tuple[str, ...]]:
    """A getter for the float fields, and the names of fields that may contain floats."""
    kind = inspect.type_info(cls)
    assert isinstance(kind, inspect.StructType)
    fields = [field for field in kind.fields if _holds_floats(field.type)]
    names = [field.name for field in fields if isinstance(field.type, inspect.FloatType)]
    others = tuple(field.name for field in fields if field.name not in names)
    if len(names) < 2:  # attrgetter returns no tuple for a single name
        return None, (*names, *others)
    return attrgetter(*names), others
