"""The records of a spool's segment: length, checksum, message.

No I/O, no clock. A damaged record does not hide those behind it: reading continues at the next
bytes that are a record, which their checksum proves.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from joulie_bus.errors import Undecodable
from joulie_bus.events import codec
from joulie_bus.streams.records import Message

_HEAD = struct.Struct("<II")
_ARRAY_OF_THREE = b"\x93"  # the first byte of an encoded message
_decode = msgspec.msgpack.Decoder(Message).decode


class Part(NamedTuple):
    """A message, or a damaged range without one; `end` is the offset behind it."""

    message: Message | None
    end: int


def framed(message: Message) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def parts(data: bytes, at: int = 0) -> Iterator[Part]:
    view = memoryview(data)
    while at < len(data):
        part = _record_at(view, at)
        yield part
        at = part.end


def records_between(before: Message | None, after: Message | None) -> int:
    """How many records of one life of a producer are missing between two; at least one."""
    if before is None or after is None:
        return 1
    try:
        first, last = (codec.origin_of(each.id, "the spool") for each in (before, after))
    except Undecodable:
        return 1
    same = (first.producer, first.boot) == (last.producer, last.boot)
    return max(1, last.seq - first.seq - 1) if same else 1


def _record_at(data: memoryview, at: int) -> Part:
    found = _whole(data, at)
    return found if found is not None else Part(None, _next_record(data, at + 1))


def _whole(data: memoryview, at: int) -> Part | None:
    begin = at + _HEAD.size
    if begin >= len(data):
        return None
    length, checksum = _HEAD.unpack_from(data, at)
    body = data[begin : begin + length]
    if not length or len(body) != length or zlib.crc32(body) != checksum:
        return None
    try:
        return Part(_decode(body), begin + length)
    except msgspec.DecodeError:
        return None


def _next_record(data: memoryview, after: int) -> int:
    """The offset of the next record; the end without one."""
    whole = data.obj
    assert isinstance(whole, bytes)
    first = whole.find(_ARRAY_OF_THREE, after + _HEAD.size)
    while first >= 0:
        if _whole(data, first - _HEAD.size) is not None:
            return first - _HEAD.size
        first = whole.find(_ARRAY_OF_THREE, first + 1)
    return len(data)
