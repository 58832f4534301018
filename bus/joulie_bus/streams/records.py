"""The values that go into a log and come out of it, for every kind of log."""

from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple

from joulie_bus.streams.subjects import Stream

# A line of the broker's protocol has at most 4,096 bytes: subject, reply subject, numbers. The
# broker closes the connection on a longer line.
LONGEST_SUBJECT = 3500


class Message(NamedTuple):
    """A message to publish. The broker removes duplicates by `id`."""

    subject: str
    id: str
    data: bytes


class Record(NamedTuple):
    """One stored message. `at` is the broker's clock when it stored it.

    `subject` is the only fact about the sender that the broker guarantees. It is "" if unknown: in
    archives written before they had the column, and in records built by tests.
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
    """`created` distinguishes streams of the same name."""

    stream: Stream
    created: str
    first: int
    last: int
    servers: tuple[str, ...] = ()  # that hold a copy, the leader first; empty for a single copy
    missing: int = 0  # messages that the leader's copy lacks between first and last
    late: tuple[str, ...] = ()  # servers that the leader does not reach, or that are catching up

    @property
    def leader(self) -> str:
        return self.servers[0] if self.servers else ""

    @property
    def holds_messages(self) -> bool:
        """An empty stream that continues a lost one has its first sequence behind its last."""
        return self.last >= max(self.first, 1)


class IncompleteCopy(NamedTuple):
    """A server of the broker whose copy of a stream lacks messages that belong to the stream."""

    server: str
    stream: Stream
    missing: int  # at least


class StreamTip(NamedTuple):
    """The end of a stream, at a moment of the broker's clock."""

    stream: Stream
    created: str
    last: int
    at: int
    # Since a majority of the replicas confirmed the leader that answered. Another leader may have
    # stored messages since then, so the end is certain only up to that moment.
    unconfirmed_ns: int = 0


class StreamSize(NamedTuple):
    """The size and limits of a stream; times are those of the broker's clock."""

    stream: Stream
    bytes: int
    max_bytes: int  # 0: no limit
    drops_old: bool  # if full; otherwise it refuses new messages
    first: int
    first_at: int
    last_at: int
    last: int = 0  # the sequence of the newest message that was ever stored
    silent_ns: Mapping[str, int] = MappingProxyType({})  # of each server with a copy; empty for one


def digest_of(record: Record) -> bytes:
    """Distinguishes this message from any other that a stream may hold at the same sequence.

    The digest includes the time: a message that was lost and sent again is stored at another time,
    possibly after other messages.
    """
    return sha256(record.at.to_bytes(8, "big", signed=True) + record.data).digest()
