"""Compares the stream of decisions with the entries, both ways, as far as signed heads commit.

A head signs a digest over the sequence, the id and the content of each message that was read. Where
the messages of the stream lead to it, each of them has an entry, and each entry is of one of them.
Other messages prove nothing: any program with the credential publishes some, and a hostile broker
or archive holds what it likes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from joulie_audit.chain.entries import Flaw
from joulie_bus.errors import StreamGap, StreamSilent
from joulie_bus.log.protocol import Log
from joulie_bus.log.whole_stream import batches
from joulie_bus.streams.records import Record, StreamState
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.entry import UNREADABLE, digest_entry, unreadable_entry
from joulie_projections.chain.head import Head, head_in
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.log_end import NO_MESSAGES, messages_digest, take
from joulie_projections.chain.sequence_gaps import Gap
from joulie_projections.chain.unreadable import TakenMessage
from joulie_projections.history.history import EntryId, History


class Compared(NamedTuple):
    flaw: Flaw | None = None
    notes: Sequence[str] = ()


class _Point(NamedTuple):
    """A head: the last message that was read before its entry, and the digest of all of them."""

    sequence: int
    pos: int
    messages: bytes


async def compare_messages(
    bus: Log, history: History, ring: Ring, anchored: Iterable[Head]
) -> Compared:
    """`anchored` are heads from outside of the database."""
    state = await bus.state(Stream.DEC)
    points = _points(history, ring, [*history.heads(), *anchored], state)
    if len(points) < 2:
        return Compared()
    try:
        return await _compared(bus, history, points)
    except (StreamGap, StreamSilent) as error:
        return Compared(notes=[f"the messages of {Stream.DEC} were not compared: {error}"])


def unlogged_notes(gaps: Sequence[Gap], published: Mapping[str, int]) -> list[str]:
    """`published` are the ids in the stream, and their sequences. That the log lacks one of them is
    a flaw only where a head signs that it was read."""
    for gap in gaps:
        for event_id in filter(published.__contains__, gap.ids()):
            where = f"{event_id} is #{published[event_id]} of {Stream.DEC} and not in the log"
            return [f"{where}, and no head signs it as read"]
    return []


def _points(
    history: History, ring: Ring, heads: Sequence[Head], state: StreamState
) -> list[_Point]:
    """Those whose messages the stream still has, in its order. The first one only begins."""
    cut = history.cut()
    of_cut = head_in(cut.note) if cut is not None else None
    known = dict[int, _Point]()
    is_first_stream = True
    for head in [*heads, *([of_cut] if of_cut is not None else [])]:
        said, read = head.commitment, head.commitment.read.get(Stream.DEC)
        if read is None or ring.flaw_of(head):
            continue
        if read.created not in ("", state.created):
            is_first_stream = False  # the log continues beside another stream
            continue
        is_there = state.first - 1 <= read.sequence <= state.last
        if is_there and said.messages and (cut is None or head.pos >= cut.pos):
            known[read.sequence] = _Point(read.sequence, head.pos, said.messages)
    if cut is None and is_first_stream and state.first <= 1:
        known.setdefault(0, _Point(0, 0, NO_MESSAGES))
    return [known[sequence] for sequence in sorted(known)]


async def _compared(bus: Log, history: History, points: Sequence[_Point]) -> Compared:
    first, *later = points
    digest, at, read = first.messages, 0, list[TakenMessage]()
    wanted = points[-1].sequence - first.sequence
    async for records in batches(bus, Stream.DEC, first.sequence, wanted):
        for message in take(records):
            digest = messages_digest(digest, [message])
            read.append(message)
            if message.record.sequence < later[at].sequence:
                continue
            if digest != later[at].messages:
                return Compared(notes=[_not_those(points[at], later[at])])
            if (flaw := _flaw(history, read, points[at], later[at])) is not None:
                return _judged(history, flaw)
            read, at = [], at + 1
            if at == len(later):
                return Compared()
    return Compared()


def _not_those(before: _Point, after: _Point) -> str:
    return (
        f"messages {before.sequence + 1} to {after.sequence} of {Stream.DEC} are not those that "
        f"the head at entry {after.pos} signs as read: the stream proves nothing there"
    )


def _judged(history: History, flaw: Flaw) -> Compared:
    """Of a trimmed log, the entry of a message that was published twice may be in the archive."""
    is_missing = not flaw.place
    if history.cut() is not None and is_missing:
        return Compared(notes=[f"{flaw.what}: it may be in the archive"])
    return Compared(flaw)


def _flaw(
    history: History, read: Sequence[TakenMessage], before: _Point, after: _Point
) -> Flaw | None:
    rows = history.entry_ids(before.pos + 1, after.pos)
    known = {row.event_id for row in rows}
    for record, entry in read:
        found = entry.fields
        if found.kind == UNREADABLE or found.event_id in known:
            continue
        if known.isdisjoint(_aside(record)) and history.position_of(found.event_id) is None:
            what = f"message {record.sequence} of {Stream.DEC}, {found.event_id}, has no entry"
            return Flaw(0, f"{what}, and the head at entry {after.pos} signs it as read")
    return _made_up(rows, {message.entry.fields.event_id for message in read}, after)


def _aside(record: Record) -> set[str]:
    """The ids of the entry of a message whose own entry could not be written."""
    return {made(record).fields.event_id for made in (unreadable_entry, digest_entry)}


def _made_up(rows: Sequence[EntryId], ids: set[str], after: _Point) -> Flaw | None:
    for row in rows:
        if row.kind != UNREADABLE and row.event_id not in ids:
            what = f"entry {row.pos}, {row.event_id}, is of no message of {Stream.DEC}"
            return Flaw(row.pos, f"{what} that the head at entry {after.pos} signs as read")
    return None
