"""Decodes rows and events from before values had bounds, without checking bounds.

New facts outside the bounds are rejected. A row that an earlier version folded from such a fact
must still decode and encode to the same bytes, or an upgrade would fail; a rebuild omits the fact.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from joulie_bus.errors import Undecodable
from joulie_bus.events import EVENT_TYPES, AnyEvent
from joulie_bus.events.codec import Envelope

S = TypeVar("S", bound=msgspec.Struct)
_EVENTS: dict[str, type[AnyEvent]] = {cls.TYPE: cls for cls in EVENT_TYPES}


def decode(body: bytes, cls: type[S]) -> S:
    """Like msgspec's decoder, without checking bounds."""
    made = _converted(inspect.type_info(cls), msgspec.msgpack.decode(body))
    assert isinstance(made, cls)
    return made


def decode_message(message: bytes, where: str) -> tuple[Envelope, AnyEvent]:
    """Decodes an event without checking bounds. Raises Undecodable for anything else."""
    try:
        whole = msgspec.msgpack.decode(message)
        data = msgspec.msgpack.encode(whole["data"])
        envelope = decode(msgspec.msgpack.encode(whole | {"data": None}), Envelope)
        return envelope, decode(data, _EVENTS[envelope.type])
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise Undecodable(where, str(error)) from error


def _converted(kind: inspect.Type, value: Any) -> Any:
    if value is None:
        return None
    match kind:
        case inspect.StructType():
            return _struct(kind, value)
        case inspect.UnionType():
            structs = (part for part in kind.types if isinstance(part, inspect.StructType))
            found = next(structs, None)
            return value if found is None else _struct(found, value)
        case inspect.DictType():
            return {key: _converted(kind.value_type, each) for key, each in value.items()}
        case inspect.VarTupleType():
            return tuple(_converted(kind.item_type, each) for each in value)
        case _:
            return value


def _struct(kind: inspect.StructType, value: Any) -> msgspec.Struct:
    by_name = {field.encode_name: field for field in kind.fields}
    given = dict(zip(by_name, value, strict=False)) if kind.array_like else value
    known = {name: each for name, each in given.items() if name in by_name}
    made: msgspec.Struct = kind.cls(
        **{by_name[name].name: _converted(by_name[name].type, each) for name, each in known.items()}
    )
    return made
