"""Events to bytes and back: MessagePack on the wire, JSON for people.

The envelope is decoded first; its `data` stays raw until somebody wants it.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal

import msgspec
from msgspec import inspect

from joulie_bus.errors import Undecodable
from joulie_bus.events import EVENT_TYPES, AnyEvent, TelemetrySampled


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Who said it, when, and why; `data` says what."""

    id: str  # producer:boot:seq, unique for ever; also the broker's message id
    type: str
    v: int
    key: str
    ts: int  # the producer's wall clock, ns; for people, never for order
    cause: str = ""  # id of the event that led to this one
    corr: str = ""  # what belongs together: a pod's uid, a plan's id
    data: msgspec.Raw


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An envelope of today's telemetry, opened to the bottom at once: nearly all messages are."""

    id: str
    type: Literal["telemetry.sampled"]
    v: Literal[1]
    key: str
    ts: int
    cause: str = ""
    corr: str = ""
    data: TelemetrySampled


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The three parts of an event's id."""

    producer: str
    boot: str
    seq: int


SEQ_DIGITS = 18  # a number that any database holds

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
    """The event's own bytes. Refuses numbers that are not numbers: JSON would turn them to null."""
    if event.TYPE in _WITH_FLOATS:
        refuse_non_finite(event)
    return _encode(event)


def seal(envelope: Envelope) -> bytes:
    return _encode(envelope)


def open_envelope(data: bytes, where: str) -> Envelope:
    try:
        return _decode_envelope(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(where, str(error)) from error


def open_sample(data: bytes) -> Sample | None:
    """In half the time of the two steps; None for whatever wants these, readable or not."""
    try:
        return _decode_sample(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read(envelope: Envelope, where: str) -> AnyEvent:
    """The event in an envelope, brought up to today's version."""
    decoder = _DECODERS.get(envelope.type)
    if decoder is None:
        raise Undecodable(where, f"nobody here knows the type {envelope.type!r}")
    try:
        if envelope.v == _CURRENT[envelope.type].VERSION:
            return decoder.decode(envelope.data)
        return msgspec.convert(_upcast(envelope, where), _CURRENT[envelope.type])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(where, f"{envelope.type} v{envelope.v}: {error}") from error


def _upcast(envelope: Envelope, where: str) -> dict[str, Any]:
    data, version = _decode_plain(envelope.data), envelope.v
    while version != _CURRENT[envelope.type].VERSION:
        step = UPCASTERS.get((envelope.type, version))
        if step is None:
            raise Undecodable(where, f"nobody here reads version {version} of {envelope.type}")
        data, version = step(data), version + 1
    return data


def origin_of(event_id: str, where: str) -> Origin:
    producer, _, rest = event_id.partition(":")
    boot, _, seq = rest.partition(":")
    if not (producer and boot and seq.isascii() and seq.isdigit() and len(seq) <= SEQ_DIGITS):
        raise Undecodable(where, f"the id {event_id!r} is not producer:boot:seq")
    return Origin(producer, boot, int(seq))


def to_json(envelope: Envelope) -> bytes:
    """For people: the same envelope with its data opened."""
    return msgspec.json.encode(_decode_plain(seal(envelope)))


def refuse_non_finite(value: object) -> None:
    """NaN and infinity have no place in a log that is summed, compared and shown as JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a number that an event may hold")
    if not isinstance(value, msgspec.Struct):
        for part in _parts(value):
            refuse_non_finite(part)
        return
    numbers, others = _suspects(type(value))
    # The sum of numbers is one; of a sum that is none we look for the one that spoilt it.
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


# Most events hold none, and telemetry least of all: they need no looking through.
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
    """What reads the fields that are floats, and the names of those in which one can be."""
    kind = inspect.type_info(cls)
    assert isinstance(kind, inspect.StructType)
    fields = [field for field in kind.fields if _holds_floats(field.type)]
    names = [field.name for field in fields if isinstance(field.type, inspect.FloatType)]
    others = tuple(field.name for field in fields if field.name not in names)
    if len(names) < 2:  # of one alone, attrgetter makes no tuple
        return None, (*names, *others)
    return attrgetter(*names), others
