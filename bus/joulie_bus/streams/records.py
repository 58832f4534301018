"""What goes into a log and what comes out of it, whatever carries it. Values only."""

from hashlib import sha256
from typing import NamedTuple

from joulie_bus.streams.subjects import Stream

# A line of the broker's protocol has 4,096 bytes: the subject, the subject of the reply, numbers.
# A longer one makes the broker hang up.
LONGEST_SUBJECT = 3500


class Message(NamedTuple):
    """Ready to be published: `id` is also what the broker removes duplicates by."""

    subject: str
    id: str
    data: bytes


class Record(NamedTuple):
    """One stored message. `at` is the broker's clock when it stored it.

    `subject` is the only thing about the sender that the broker vouches for. It is "" where it is
    unknown: in archives written before they had the column, and where a test builds a record.
    """

    stream: Stream
    sequence: int
    at: int
    data: bytes
    subject: str = ""


class Stored(NamedTuple):
    """The newest message of one subject."""

    sequence: int
    data: bytes


class StreamState(NamedTuple):
    """`created` tells a stream from another one of the same name."""

    stream: Stream
    created: str
    first: int
    last: int


class StreamSize(NamedTuple):
    """What a stream holds, and may hold; times by the broker's clock."""

    stream: Stream
    bytes: int
    max_bytes: int  # 0: no limit
    drops_old: bool  # where it is full; else it refuses what is new
    first: int
    first_at: int
    last_at: int


def digest_of(record: Record) -> bytes:
    """Tells this message from any other one that a stream could hold at the same sequence.

    The time is part of it: a message that was lost and sent again is stored at another time, and
    other messages may lie between it and what was stored before it.
    """
    return sha256(record.at.to_bytes(8, "big", signed=True) + record.data).digest()
