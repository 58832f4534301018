"""Limits what the decision log keeps of messages that are no decisions.

The log is append-only: what a hostile sender makes it store stays. The first messages of a subject
in a minute have an entry each. The others are counted: one entry names their number, their
positions and a digest, once a message of a later minute is read. The minute is that of the broker,
so it does not depend on when the messages are read.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.streams.records import Record
from joulie_projections.chain.entry import UNREADABLE, Entry, unreadable_note

PER_SUBJECT = 10  # entries of one minute
PER_MINUTE = 50  # entries of all subjects
SUBJECTS = 20  # that are counted apart in one minute; more are counted together
_MINUTE_NS = 60_000_000_000
_LONGEST_SUBJECT = 256  # characters in an entry


class Beyond(msgspec.Struct, frozen=True, array_like=True):
    """Messages of one subject and minute that have no entry of their own."""

    first: int
    last: int
    count: int
    size: int
    digest: bytes  # sha256 over the digest so far and the message, one after the other

    def with_one(self, record: Record) -> "Beyond":
        digest = hashlib.sha256(self.digest + record.data).digest()
        first, size = self.first or record.sequence, self.size + len(record.data)
        return Beyond(first, record.sequence, self.count + 1, size, digest)

    def entry(self, subject: str) -> Entry:
        of = f"of {subject[:_LONGEST_SUBJECT]}" if subject else "of several subjects"
        note = (
            f"{self.count} messages {of}, #{self.first} to #{self.last}, "
            f"{self.size} bytes that are not kept, chained sha256 {self.digest.hex()}"
        )
        return unreadable_note(f"{self.first}:{self.count}-messages", note)


_NONE = Beyond(0, 0, 0, 0, b"")


class _Minute(msgspec.Struct):
    """What a minute has used of its quota."""

    number: int = 0
    used: dict[str, int] = {}
    beyond: dict[str, Beyond] = {}


class TakenMessage(NamedTuple):
    record: Record
    entry: Entry


class Limited(NamedTuple):
    entries: list[Entry]
    refused: int  # messages that are no decisions
    quota: "UnreadableQuota"  # after them


class UnreadableQuota:
    """`saved` is what an earlier process used, so that it is neither exceeded nor forgotten."""

    def __init__(self, saved: bytes = b"") -> None:
        self._saved = saved
        self._minute = msgspec.msgpack.decode(saved, type=_Minute) if saved else _Minute()

    @property
    def saved(self) -> bytes:
        return self._saved

    @property
    def digest(self) -> bytes:
        """Empty if nothing was used."""
        return hashlib.sha256(self._saved).digest() if self._saved else b""

    def take(self, messages: Sequence[TakenMessage]) -> Limited:
        """The entries of the messages. Changes nothing here."""
        refused = sum(entry.fields.kind == UNREADABLE for _, entry in messages)
        if not refused and not self._minute.beyond:  # the common case
            return Limited([entry for _, entry in messages], 0, self)
        after = UnreadableQuota(self._saved)
        entries = [each for record, entry in messages for each in after._limited(record, entry)]
        after._saved = msgspec.msgpack.encode(after._minute)
        return Limited(entries, refused, after)

    def _limited(self, record: Record, entry: Entry) -> Iterator[Entry]:
        """The entry of a message, if it has one, after those of an earlier minute."""
        number = record.at // _MINUTE_NS
        if number > self._minute.number:
            ended, self._minute = self._minute, _Minute(number)
            for subject, beyond in ended.beyond.items():
                yield beyond.entry(subject)
        if entry.fields.kind != UNREADABLE or self._has_room(record.subject):
            yield entry
        else:
            self._count(record)

    def _has_room(self, subject: str) -> bool:
        used = self._minute.used
        if used.get(subject, 0) >= PER_SUBJECT or sum(used.values()) >= PER_MINUTE:
            return False
        used[subject] = used.get(subject, 0) + 1
        return True

    def _count(self, record: Record) -> None:
        beyond = self._minute.beyond
        is_apart = record.subject in beyond or len(beyond) < SUBJECTS
        subject = record.subject if is_apart else ""
        beyond[subject] = beyond.get(subject, _NONE).with_one(record)
