"""How long archived data may stay: as asked, or shorter where a stream runs out of room."""

from collections.abc import Iterable
from typing import NamedTuple

from joulie_bus.streams.fill_level import kept_s
from joulie_bus.streams.records import StreamSize
from joulie_bus.streams.subjects import MERGE_ORDER, Stream

TRIMMED = (*MERGE_ORDER, Stream.DEC)  # heads stay
SHORT = 0.7  # of the room of a stream; from there on trimming follows the room
WANTED = 0.5
LEAST_S = 3600.0  # what stays in any case, unless less was asked for


class Keep(NamedTuple):
    seconds: float
    short: Stream | None = None  # the stream whose room allows no more


def is_short(size: StreamSize) -> bool:
    """Whether the stream refuses messages soon. One that drops old messages never does."""
    return not size.drops_old and bool(size.max_bytes) and size.bytes > SHORT * size.max_bytes


def keep_in_room(sizes: Iterable[StreamSize], keep_s: float) -> Keep:
    """A stream keeps as much of its time as it may keep of its bytes."""
    keep, least = Keep(keep_s), min(LEAST_S, keep_s)
    for size in filter(is_short, sizes):
        seconds = max(least, kept_s(size) * WANTED * size.max_bytes / size.bytes)
        if seconds < keep.seconds:
            keep = Keep(seconds, size.stream)
    return keep
