"""The end of the log, as its only writer knows it, and what the next messages add to it.

Both follow from the messages of the stream of decisions alone, byte for byte: a writer that begins
at a signed head derives the entries behind it again, whatever the database holds there.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from joulie_bus.events import OutcomeSeen
from joulie_bus.streams.records import Record
from joulie_projections.chain.entry import (
    FIRST_PREV,
    Entry,
    chain_hash,
    digest_entry,
    entry_of,
    unreadable_entry,
)
from joulie_projections.chain.merkle import Frontier
from joulie_projections.chain.unreadable import TakenMessage, UnreadableQuota
from joulie_projections.fold.commit import Input
from joulie_projections.fold.sequence import input_after

NO_MESSAGES = bytes(32)


class End(NamedTuple):
    pos: int  # of the last entry
    hash: bytes
    read: Input  # the last message of the stream
    messages: bytes  # a chained digest over all messages that were taken
    quota: UnreadableQuota
    tree: Frontier  # over all entries; never changed in place


EMPTY = End(0, FIRST_PREV, Input("", 0), NO_MESSAGES, UnreadableQuota(), Frontier())


class ChainedEntry(NamedTuple):
    pos: int
    entry: Entry
    prev: bytes
    hash: bytes


class Step(NamedTuple):
    """What messages add to the log."""

    rows: Sequence[ChainedEntry]
    end: End  # after them
    tiles: Sequence[bytes] = ()  # the roots of the tiles of the tree that they complete
    refused: int = 0  # messages that are no decisions
    settled: Sequence[str] = ()  # pods whose outcome is among the messages, new or repeated

    @property
    def ids(self) -> list[str]:
        return [row.entry.fields.event_id for row in self.rows]


def take(records: Sequence[Record]) -> list[TakenMessage]:
    return [TakenMessage(record, entry_of(record)) for record in records]


def step_of(
    end: End, messages: Sequence[TakenMessage], created: str, known: Mapping[str, bytes]
) -> Step:
    """`known` are the bodies of entries of the log that have the id of one of the messages."""
    taken = end.quota.take(list(_without_repeats(messages, known)))
    read = input_after(created, messages[-1].record)
    made = chained(end._replace(quota=taken.quota), taken.entries, read)
    after = made.end._replace(messages=messages_digest(end.messages, messages))
    fields = (message.entry.fields for message in messages)
    settled = [each.pod_uid for each in fields if each.kind == OutcomeSeen.TYPE]
    return made._replace(end=after, refused=taken.refused, settled=settled)


def set_aside(end: End, record: Record, created: str, *, keeps_bytes: bool) -> Step:
    """For a message whose entry the database refuses: an unreadable entry."""
    entry = unreadable_entry(record) if keeps_bytes else digest_entry(record)
    made = chained(end, [entry], input_after(created, record))
    digest = messages_digest(end.messages, take([record]))
    return made._replace(end=made.end._replace(messages=digest), refused=1)


def chained(end: End, entries: Sequence[Entry], read: Input) -> Step:
    rows: list[ChainedEntry] = []
    pos, prev = end.pos, end.hash
    for entry in entries:
        pos, here = pos + 1, chain_hash(prev, entry.body)
        rows.append(ChainedEntry(pos, entry, prev, here))
        prev = here
    tree = end.tree.copied()
    tiles = tree.extend([row.hash for row in rows])
    return Step(rows, end._replace(pos=pos, hash=prev, read=read, tree=tree), tiles)


def _without_repeats(
    messages: Sequence[TakenMessage], known: Mapping[str, bytes]
) -> Iterator[TakenMessage]:
    """A message that the log has is dropped; another one with its id becomes unreadable."""
    bodies = dict(known)
    for message in messages:
        entry = message.entry
        if bodies.get(entry.fields.event_id, entry.body) != entry.body and _names_one(entry):
            entry = unreadable_entry(message.record)
        if entry.fields.event_id not in bodies:
            bodies[entry.fields.event_id] = entry.body
            yield TakenMessage(message.record, entry)


def _names_one(entry: Entry) -> bool:
    """Whether its id is that of one message. The outcome of a pod is published again, with less if
    the answer is gone by then."""
    return entry.fields.kind != OutcomeSeen.TYPE


def messages_digest(digest: bytes, messages: Sequence[TakenMessage]) -> bytes:
    """Covers the sequence, the id and the SHA-256 of each message that was taken, in order."""
    for record, entry in messages:
        content = hashlib.sha256(record.data).digest()
        leaf = record.sequence.to_bytes(8) + content + entry.fields.event_id.encode()
        digest = hashlib.sha256(digest + leaf).digest()
    return digest
