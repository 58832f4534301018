"""What goes into a log and what comes out of it, whatever carries it. Values only."""

from typing import NamedTuple

from joulie_bus.subjects import Stream


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
