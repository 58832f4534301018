"""The tables of a part, and the rows of their columns.

`joulie_audit.columns` makes the typed ones, which nothing here reads back.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from joulie_audit.columns.arrays import Ints
from joulie_audit.columns.facts import fact_tables
from joulie_audit.columns.log import log_tables
from joulie_audit.columns.messages import STREAMS, Messages, Placed
from joulie_audit.columns.tables import Columns, TypedColumns
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.head import Head, encode
from joulie_projections.chain.signed import KeyStatement, decode_key
from joulie_projections.fold.commit import Poison, Snapshot
from joulie_projections.fold.manifest import Manifest, Range, hash_of_all
from joulie_projections.fold.quarantine_quota import all_positions
from joulie_projections.history.history import StoredEntry
from joulie_projections.twin.row_names import RowName

MESSAGES, READING_MESSAGES = "messages", "reading_messages"
BATCHES, ASIDE, SNAPSHOTS, LOST = "batches", "aside", "snapshots", "lost"
ROW_NAMES = "names"
ENTRIES, HEADS, KEYS = "entries", "heads", "keys"
NOT_OF_BATCHES = "its messages are not those of its batches"
_ranges_in = msgspec.msgpack.Decoder(tuple[Range, ...]).decode


class FactPart(NamedTuple):
    manifests: list[Manifest]
    records: list[Record]
    aside: list[Poison]  # quarantined by the projector; folds leave them out
    snapshots: Sequence[Snapshot] = ()  # at most one: time travel within the part can start there
    lost: tuple[Range, ...] = ()  # aged out before they were archived: not among the records
    names: tuple[RowName, ...] = ()  # the rows that its commits gave to nodes

    def batches(self) -> Iterator["Batch"]:
        start = 0
        for manifest, count, gone in counted(self.manifests, self.lost):
            yield Batch(manifest, self.records[start : start + count], gone)
            start += count


class Batch(NamedTuple):
    """A manifest and its records, but those that are lost."""

    manifest: Manifest
    records: list[Record]
    lost: tuple[Range, ...]


class Outline(NamedTuple):
    """A part without its facts."""

    manifests: list[Manifest]
    aside: list[Poison]
    snapshots: Sequence[Snapshot]
    lost: tuple[Range, ...]
    names: tuple[RowName, ...]


class PartMessages(NamedTuple):
    """A part whose messages are columns."""

    outline: Outline
    messages: Messages
    plain: Ints  # the positions of those that lie in `reading_messages`


NO_OUTLINE = Outline([], [], (), (), ())


class LogPart(NamedTuple):
    entries: list[StoredEntry]
    heads: list[Head]
    keys: tuple[KeyStatement, ...] = ()


def counted(
    manifests: Sequence[Manifest], lost: Sequence[Range]
) -> Iterator[tuple[Manifest, int, tuple[Range, ...]]]:
    """Each with how many messages of it are not lost, and its ranges that are."""
    every = frozenset(lost)
    for manifest in manifests:
        gone = tuple(place for place in manifest.ranges if place in every) if every else ()
        yield (
            manifest,
            manifest.p_to - manifest.p_from + 1 - sum(place.count for place in gone),
            gone,
        )


def columns_of_facts(part: FactPart) -> dict[str, TypedColumns]:
    here = placed(part)
    made = fact_tables(Messages.of(here), all_positions(part.aside))
    plain, others = made.split(here)
    kept = {SNAPSHOTS: _columns(Snapshot._fields, part.snapshots)} if part.snapshots else {}
    lost = {LOST: _columns(Range.__struct_fields__, part.lost)} if part.lost else {}
    names = {ROW_NAMES: _columns(RowName._fields, part.names)} if part.names else {}
    return {
        **kept,
        **lost,
        **names,
        MESSAGES: _messages(others),
        READING_MESSAGES: _messages(plain),
        **made.typed,
        BATCHES: {
            name: [_plain(getattr(manifest, name)) for manifest in part.manifests]
            for name in Manifest._fields
        },
        ASIDE: _columns(Poison._fields, part.aside),
    }


def typed_tables(part: FactPart | LogPart) -> Mapping[str, TypedColumns]:
    """Those that its messages or entries give."""
    if isinstance(part, LogPart):
        return log_tables(part.entries)
    return fact_tables(Messages.of(placed(part)), all_positions(part.aside)).typed


def placed(part: FactPart) -> list[Placed]:
    """Each record with its position; positions of lost messages have none."""
    return list(zip(_positions(part.manifests, part.lost), part.records, strict=True))


def _positions(manifests: Sequence[Manifest], lost: Sequence[Range]) -> Iterator[int]:
    for first, length in _stretches(manifests, lost):
        yield from range(first, first + length)


def batches_without(stream: Stream, outline: Outline, records: Mapping[int, Record]) -> list[Batch]:
    """The batches of a part; `records` are at least those of all other streams, by position."""
    found: list[Batch] = []
    for manifest, _, gone in counted(outline.manifests, outline.lost):
        position, chosen = manifest.p_from, list[Record]()
        for place in manifest.ranges:
            if place.stream is not stream and place not in gone:
                chosen += [records[at] for at in range(position, position + place.count)]
            position += place.count
        found.append(Batch(manifest, chosen, gone))
    return found


def _stretches(manifests: Sequence[Manifest], lost: Sequence[Range]) -> Iterator[tuple[int, int]]:
    """The first position and the length of each range that is not lost."""
    gone = frozenset(lost)
    for manifest in manifests:
        position = manifest.p_from
        for place in manifest.ranges:
            if not gone or place not in gone:
                yield position, place.count
            position += place.count


def require_positions(messages: Messages, outline: Outline) -> None:
    """Raises unless the messages are those of the batches, each once and in order."""
    stretches = np.array(list(_stretches(outline.manifests, outline.lost)), np.int64)
    first, length = stretches.reshape(-1, 2).T
    if sum(length.tolist()) != len(messages.positions) or (length < 0).any():
        raise ValueError(NOT_OF_BATCHES)
    before = np.cumsum(length) - length
    expected = np.repeat(first - before, length) + np.arange(len(messages.positions))
    if not np.array_equal(expected, messages.positions):
        raise ValueError(NOT_OF_BATCHES)


def _messages(placed: Sequence[Placed]) -> Columns:
    return {
        "position": [position for position, _ in placed],
        "stream": [str(record.stream) for _, record in placed],
        "sequence": [record.sequence for _, record in placed],
        "at": [record.at for _, record in placed],
        "body": [record.data for _, record in placed],
        "subject": [record.subject for _, record in placed],
    }


def placed_in(messages: Columns) -> Iterator[Placed]:
    streams = map(STREAMS.__getitem__, messages["stream"])
    fields = (messages[name] for name in ("sequence", "at", "body", "subject"))
    records = map(Record._make, zip(streams, *fields, strict=True))
    return zip(messages["position"], records, strict=True)


def columns_of_log(part: LogPart) -> dict[str, TypedColumns]:
    columns = {
        ENTRIES: _columns(StoredEntry._fields, part.entries),
        HEADS: {"note": [head.note for head in part.heads]},
    }
    keys: Columns = {"statement": [encode(statement) for statement in part.keys]}
    return {**columns, **log_tables(part.entries), **({KEYS: keys} if part.keys else {})}


def facts_of_columns(tables: Mapping[str, Columns]) -> FactPart:
    outline = outline_of_columns(tables)
    found = chain.from_iterable(placed_in(tables[name]) for name in (MESSAGES, READING_MESSAGES))
    in_order = sorted(found, key=itemgetter(0))
    if [position for position, _ in in_order] != list(_positions(outline.manifests, outline.lost)):
        raise ValueError(NOT_OF_BATCHES)
    return FactPart(outline.manifests, [record for _, record in in_order], *outline[1:])


def outline_of_columns(tables: Mapping[str, Columns]) -> Outline:
    rows = _rows(tables.get(LOST, {}))
    return Outline(
        manifests_of(tables[BATCHES]),
        poison_of(tables.get(ASIDE, {})),
        snapshots_of(tables.get(SNAPSHOTS, {})),
        tuple(Range(STREAMS[row["stream"]], row["first"], row["last"]) for row in rows),
        tuple(RowName(**row) for row in _rows(tables.get(ROW_NAMES, {}))),
    )


def manifests_of(batches: Columns) -> list[Manifest]:
    if len(set(map(len, batches.values()))) > 1:
        raise ValueError("its columns have not as many rows as each other")
    columns = {**batches, "ranges": list(map(_ranges_in, batches["ranges"]))}
    return list(map(Manifest._make, zip(*map(columns.__getitem__, Manifest._fields), strict=True)))


def poison_of(aside: Columns) -> list[Poison]:
    return [Poison(**row) for row in _rows(aside)]


def snapshots_of(kept: Columns) -> tuple[Snapshot, ...]:
    return tuple(Snapshot(**row) for row in _rows(kept))


def heads_of(heads: Columns) -> list[Head]:
    return [Head(**row) for row in _rows(heads)]


def log_of_columns(tables: Mapping[str, Columns]) -> LogPart:
    entries = [StoredEntry(**row) for row in _rows(tables[ENTRIES])]
    statements = tables.get(KEYS, {"statement": []})["statement"]  # most parts have none
    keys = tuple(map(decode_key, statements))
    return LogPart(entries, heads_of(tables[HEADS]), keys)


def root_of(part: FactPart | LogPart | Sequence[Manifest]) -> str:
    """Of facts over the roots of their batches: verification, restore and replay compare these
    with the messages."""
    if isinstance(part, LogPart):
        return hash_of_all([entry.body for entry in part.entries]).hex()
    manifests = part.manifests if isinstance(part, FactPart) else part
    return hash_of_all([manifest.facts_hash for manifest in manifests]).hex()


def _plain(value: object) -> object:
    return msgspec.msgpack.encode(value) if isinstance(value, tuple) else value


def _columns(names: Sequence[str], rows: Sequence[Any]) -> Columns:
    return {name: [getattr(row, name) for row in rows] for name in names}


def _rows(columns: Columns) -> Iterator[dict[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))
