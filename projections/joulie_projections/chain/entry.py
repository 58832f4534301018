"""The content and the encoding of an entry of the decision log.

    @00380054005800690074extender-0:b1:7   decision.filter   uid   team/train   4711   1792324800...
    the message, byte for byte as received

The first line is the header of the entry: its indexed fields, separated by tabs, after five numbers
that give the offset of each tab. The header is hashed together with the message, so that a
verification does not have to decode messages and compare.
"""

import hashlib
import re
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    AnyEvent,
    BindDecided,
    DecisionsDropped,
    FallbackAnswered,
    FilterDecided,
    OutcomeSeen,
    PreemptDecided,
    PrioritizeDecided,
    Promise,
    PromiseKey,
    SettingsDeclared,
    StateSetBack,
    codec,
)
from joulie_bus.events.codec import Envelope
from joulie_bus.streams.authority import require_authority
from joulie_bus.streams.records import Record
from joulie_migrations import decision_table

UNREADABLE = "unreadable"
FIRST_PREV = bytes(32)
MAX_KEPT_BYTES = 4096  # of a message that is no decision
MAX_COLUMN_INT = 2**63 - 1  # the largest value of a column
MAX_HEADER_BYTES = 10**decision_table.WIDTH - 1  # the longest header
_MARK, _ENDS, _FIRST = (
    decision_table.MARK.encode(),
    b"%04d" * decision_table.FIELDS,
    decision_table.FIRST,
)
_CONTROL = re.compile(r"[\x00-\x1f]")


class EntryFields(NamedTuple):
    """The indexed fields of an entry."""

    event_id: str
    kind: str
    pod_uid: str
    pod: str
    view_position: int
    decided_at: int

    def differs_from(self, other: "EntryFields") -> str:
        """The name of the first differing field; empty if all are equal."""
        pairs = zip(self._fields, self, other, strict=True)
        return next((column for column, mine, its in pairs if mine != its), "")


class Entry(NamedTuple):
    """An entry without its place in the chain."""

    fields: EntryFields
    body: bytes


def entry_of(record: Record) -> Entry:
    """The entry of a message.

    A message that cannot be decoded, or that its sender may not write, becomes an unreadable entry:
    its bytes are kept if they are few, and it does not count as a decision.
    """
    where = f"{record.stream} #{record.sequence}"
    try:
        envelope = codec.open_envelope(record.data, where)
        event = codec.read(envelope, where)
        require_authority(record, envelope, event, where)
        fields = fields_of_event(envelope, event, where)
        _require_fitting(where, fields)
    except Undecodable:
        return unreadable_entry(record)
    return Entry(fields, header_of(fields) + record.data)


def unreadable_entry(record: Record) -> Entry:
    """An entry that is indexed only by the sequence of the message in its stream.

    A large message is not kept: its sender could fill a log that nothing is removed from.
    """
    if len(record.data) > MAX_KEPT_BYTES:
        return digest_entry(record)
    fields = _unreadable_fields(str(record.sequence))
    return Entry(fields, header_of(fields) + record.data)


def digest_entry(record: Record) -> Entry:
    """An unreadable entry with the length and the digest of its message. The stream has it."""
    digest = hashlib.sha256(record.data).hexdigest()
    note = f"{len(record.data)} bytes that are not kept, sha256 {digest}"
    return unreadable_note(f"{record.sequence}:sha256", note)


def unreadable_note(place: str, note: str) -> Entry:
    """An entry that describes messages: `place` distinguishes it from one that holds a message."""
    fields = _unreadable_fields(place)
    return Entry(fields, header_of(fields) + note.encode())


def _unreadable_fields(place: str) -> EntryFields:
    return EntryFields(f"{UNREADABLE}:{place}", UNREADABLE, "", "", 0, 0)


def fields_of_message(message: bytes, where: str) -> EntryFields:
    envelope = codec.open_envelope(message, where)
    return fields_of_event(envelope, codec.read(envelope, where), where)


def fields_of_event(envelope: Envelope, event: AnyEvent, where: str) -> EntryFields:
    match event:
        case FilterDecided() | PrioritizeDecided() | PreemptDecided():
            pod, view, now = event.pod, event.basis.view, event.basis.now
            uid, name = pod.uid, f"{pod.namespace}/{pod.name}"
        case BindDecided() | FallbackAnswered():
            view, now = event.basis.view, event.basis.now
            uid, name = event.pod_uid, f"{event.namespace}/{event.name}"
        case OutcomeSeen():
            view, now = 0, envelope.ts
            uid, name = event.pod_uid, f"{event.namespace}/{event.name}"
        case SettingsDeclared() | DecisionsDropped() | StateSetBack() | PromiseKey() | Promise():
            view, now = 0, envelope.ts
            uid, name = "", ""
        case _:
            raise Undecodable(where, f"{event.TYPE} does not belong in the decision log")
    return EntryFields(envelope.id, event.TYPE, uid, name, view, now)


def _require_fitting(where: str, fields: EntryFields) -> None:
    """Messages may hold values that do not fit a column; such a value must not stop the log."""
    for value in fields:
        if isinstance(value, str) and _CONTROL.search(value):
            raise Undecodable(where, f"{value!r} contains a control character")
        if isinstance(value, int) and abs(value) > MAX_COLUMN_INT:
            raise Undecodable(where, f"{value} does not fit a column")
    if (length := len(header_of(fields))) > MAX_HEADER_BYTES:
        raise Undecodable(where, f"its names take {length} bytes, which do not fit a header")


# --- header and message -----------------------------------------------------------------------


def header_of(fields: EntryFields) -> bytes:
    *texts, view, now = fields
    columns = [*(text.encode() for text in texts), b"%d" % view]
    ends = accumulate((len(column) + 1 for column in columns), initial=_FIRST)
    return b"%b%b%b\t%d\n" % (_MARK, _ENDS % tuple(ends)[1:], b"\t".join(columns), now)


def has_header(body: bytes) -> bool:
    return body.startswith(_MARK)


def parse_header(body: bytes) -> EntryFields:
    """Raises ValueError if the first line is not a header."""
    if not has_header(body):
        raise ValueError("the body does not begin with a header")
    line = body[: body.find(b"\n") + 1]
    event_id, kind, pod_uid, pod, view, now = line[_FIRST:-1].decode().split("\t")
    fields = EntryFields(event_id, kind, pod_uid, pod, int(view), int(now))
    if header_of(fields) != line:
        raise ValueError("the body does not begin with a header")
    return fields


def message_in(body: bytes) -> bytes:
    return body[body.find(b"\n") + 1 :] if has_header(body) else body


def ids_and_kinds_in(bodies: Sequence[bytes]) -> tuple[list[bytes], list[bytes]] | None:
    """Event ids and kinds, read without parsing the headers: a verification reads millions.

    None if a body has no header; empty ones for a malformed header.
    """
    starts = list(map(_FIRST_ENDS, bodies))  # the mark and two ends: few distinct values
    places = {start: _places_in(start) for start in dict.fromkeys(starts)}
    if None in places.values():
        return None
    found = [places[start] or _NOWHERE for start in starts]
    ids = [body[ours] for body, (ours, _) in zip(bodies, found, strict=True)]
    return ids, [body[kind] for body, (_, kind) in zip(bodies, found, strict=True)]


_FIRST_ENDS = itemgetter(slice(1 + 2 * decision_table.WIDTH))
_NOWHERE = slice(0, 0), slice(0, 0)


def _places_in(start: bytes) -> tuple[slice, slice] | None:
    """Where the id and the kind lie."""
    if not has_header(start):
        return None
    middle = 1 + decision_table.WIDTH
    if len(start) < middle + decision_table.WIDTH or not start[1:].isdigit():
        return _NOWHERE
    ends = int(start[1:middle]), int(start[middle:])
    return slice(_FIRST, ends[0] - 1), slice(ends[0], ends[1] - 1)


def chain_hash(prev: bytes, body: bytes) -> bytes:
    return hashlib.sha256(prev + body).digest()
