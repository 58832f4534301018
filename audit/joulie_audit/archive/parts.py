"""The log outside the broker and the database: sealed parts of at most one hour.

    DIR/facts/2026-11-21/10/000000000001-000000012345/   facts.* batches.* aside.* manifest.json
                                                         readings.* others.*: of facts, in columns
                                                         names.*: if rows were given to nodes there
                                                         lost.*: if messages had aged out before
    DIR/log/2026-11-21/10/000000000001-000000004711/     entries.* heads.* manifest.json
                                                         keys.*: if keys changed there

A part is written next to its final directory, read back and compared, and then renamed. Its
manifest holds the SHA-256 of each file and the seal of the part before it, so a part that is
changed, exchanged or removed is detected.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from joulie_audit.archive.columnar import Columns, format_of
from joulie_audit.archive.fact_source import FactSource
from joulie_audit.archive.reading_columns import (
    OTHERS,
    READINGS,
    columns_of,
    log_columns,
    tables_of,
)
from joulie_audit.archive.untrusted_files import (
    LARGEST_MANIFEST,
    content_of,
    reading,
    require_checksum,
    require_plain_name,
)
from joulie_bus.core.formats import in_force
from joulie_bus.errors import ArchiveBroken, NeverArchived
from joulie_bus.events.bounds import LARGEST
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.chain.head import Head, encode
from joulie_projections.chain.signed import KeyStatement, decode_key
from joulie_projections.energy.columns import LogColumns
from joulie_projections.fold.commit import Poison, Snapshot
from joulie_projections.fold.manifest import Manifest, Range, merkle_root
from joulie_projections.history.history import History, StoredEntry
from joulie_projections.twin.row_names import RowName

FORMAT = f"joulie-archive/{in_force('archive')}"
FACTS, LOG = "facts", "log"
BATCHES, ASIDE, SNAPSHOTS, LOST = "batches", "aside", "snapshots", "lost"
ROW_NAMES = "names"
ENTRIES, HEADS, KEYS = "entries", "heads", "keys"
MANIFEST = "manifest.json"
OTHER_LOG = "its facts belong to another log"
_EVERY = frozenset(MERGE_ORDER)
_STREAMS = {str(stream): stream for stream in Stream}
_ranges_in = msgspec.msgpack.Decoder(tuple[Range, ...]).decode


class File(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    rows: int
    sha256: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `manifest.json`: the files of a part and their checksums."""

    format: str = FORMAT
    kind: str
    first: int  # position, or number of the entry
    last: int
    files: list[File]
    root: str  # Merkle root over the bodies
    prev: str  # seal of the part before; "" for the first
    created: dict[str, str] = {}  # identity of the streams that the facts are from
    seal: str = ""  # sha256 of all of the above

    @property
    def name(self) -> str:
        return f"{self.first:012d}-{self.last:012d}"

    @classmethod
    def before_the_first(cls, kind: str) -> "Part":
        return cls(kind=kind, first=0, last=0, files=[], root="", prev="")

    def has(self, table: str) -> bool:
        return any(Path(file.name).stem == table for file in self.files)

    def follows(self, before: "Part") -> bool:
        return (self.prev, self.first) == (before.seal, before.last + 1)


class FactPart(NamedTuple):
    manifests: list[Manifest]
    records: list[Record]
    aside: list[Poison]  # quarantined by the projector; folds leave them out
    snapshots: Sequence[Snapshot] = ()  # at most one: time travel within the part can start there
    lost: tuple[Range, ...] = ()  # aged out before they were archived: not among the records
    names: tuple[RowName, ...] = ()  # the rows that its commits gave to nodes

    def batches(self) -> Iterator["Batch"]:
        lost, start = frozenset(self.lost), 0
        for manifest in self.manifests:
            gone = tuple(place for place in manifest.ranges if place in lost)
            count = manifest.p_to - manifest.p_from + 1 - sum(map(_length, gone))
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


NO_OUTLINE = Outline([], [], (), (), ())


class LogPart(NamedTuple):
    entries: list[StoredEntry]
    heads: list[Head]
    keys: tuple[KeyStatement, ...] = ()


def _length(place: Range) -> int:
    return place.last - place.first + 1


def sealed(part: Part) -> Part:
    blank = replace(part, seal="")
    return replace(blank, seal=hashlib.sha256(msgspec.json.encode(blank)).hexdigest())


# --- rows and columns -------------------------------------------------------------------------


def columns_of_facts(part: FactPart) -> dict[str, Columns]:
    kept = {SNAPSHOTS: _columns(Snapshot._fields, part.snapshots)} if part.snapshots else {}
    readings = {} if part.lost else tables_of(log_columns(part.records))
    lost = {LOST: _columns(Range.__struct_fields__, part.lost)} if part.lost else {}
    names = {ROW_NAMES: _columns(RowName._fields, part.names)} if part.names else {}
    return (
        kept
        | lost
        | names
        | {
            "facts": {
                "stream": [str(record.stream) for record in part.records],
                "sequence": [record.sequence for record in part.records],
                "at": [record.at for record in part.records],
                "body": [record.data for record in part.records],
                "subject": [record.subject for record in part.records],
            },
            **readings,
            BATCHES: {
                name: [_plain(getattr(manifest, name)) for manifest in part.manifests]
                for name in Manifest._fields
            },
            ASIDE: _columns(Poison._fields, part.aside),
        }
    )


def columns_of_log(part: LogPart) -> dict[str, Columns]:
    columns = {
        ENTRIES: _columns(StoredEntry._fields, part.entries),
        HEADS: {"note": [head.note for head in part.heads]},
    }
    keys: Columns = {"statement": [encode(statement) for statement in part.keys]}
    return columns | ({KEYS: keys} if part.keys else {})


def facts_of_columns(tables: Mapping[str, Columns]) -> FactPart:
    facts = tables["facts"]
    streams = map(_STREAMS.__getitem__, facts["stream"])
    bodies = facts["body"]
    subjects = facts.get("subject", [""] * len(bodies))  # older archives have none
    records_in = zip(streams, facts["sequence"], facts["at"], bodies, subjects, strict=True)
    records = list(map(Record._make, records_in))
    outline = outline_of_columns(tables)
    return FactPart(outline.manifests, records, *outline[1:])


def outline_of_columns(tables: Mapping[str, Columns]) -> Outline:
    rows = _rows(tables.get(LOST, {}))
    return Outline(
        manifests_of(tables[BATCHES]),
        poison_of(tables.get(ASIDE, {})),  # older archives have none
        snapshots_of(tables.get(SNAPSHOTS, {})),
        tuple(Range(_STREAMS[row["stream"]], row["first"], row["last"]) for row in rows),
        tuple(RowName(**row) for row in _rows(tables.get(ROW_NAMES, {}))),
    )


def manifests_of(batches: Columns) -> list[Manifest]:
    columns = {**batches, "ranges": list(map(_ranges_in, batches["ranges"]))}
    rows = (tuple(row[name] for name in Manifest._fields) for row in _rows(columns))
    return list(map(Manifest._make, rows))


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


def root_of(part: FactPart | LogPart) -> str:
    if isinstance(part, FactPart):
        return merkle_root([record.data for record in part.records]).hex()
    return merkle_root([entry.body for entry in part.entries]).hex()


def _plain(value: object) -> object:
    return msgspec.msgpack.encode(value) if isinstance(value, tuple) else value


def _columns(names: Sequence[str], rows: Sequence[Any]) -> Columns:
    return {name: [getattr(row, name) for row in rows] for name in names}


def _rows(columns: Columns) -> Iterator[dict[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


# --- reading ----------------------------------------------------------------------------------


def is_archive(path: Path) -> bool:
    return (path / FACTS).is_dir() or (path / LOG).is_dir()


class Archive:
    """Read-only access. Everything is checked against its seal before it is returned."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, path: Path) -> "Archive":
        if not is_archive(path):
            raise ArchiveBroken(str(path), f"there is neither {FACTS}/ nor {LOG}/ in it")
        return cls(path)

    @cached_property
    def facts(self) -> list[tuple[Path, Part]]:
        return self.parts(FACTS)

    @cached_property
    def log(self) -> list[tuple[Path, Part]]:
        return self.parts(LOG)

    def parts(self, kind: str) -> list[tuple[Path, Part]]:
        """In order; raises at the first part that does not follow the one before it."""
        found: list[tuple[Path, Part]] = []
        last = Part.before_the_first(kind)
        for file in self._manifests(kind):
            part = part_of(file, kind, content_of(file, LARGEST_MANIFEST))
            if not part.follows(last):
                raise ArchiveBroken(
                    str(file), f"it does not follow {kind} {last.last}; a part is missing"
                )
            last = part
            found.append((file.parent, part))
        return found

    def _manifests(self, kind: str) -> list[Path]:
        """Manifests of complete parts: an unfinished part starts with a dot."""
        found = self.path.glob(f"{kind}/*/*/[!.]*/{MANIFEST}")
        return sorted(found, key=lambda file: file.parent.name)

    def read_facts(self, place: Path, part: Part) -> FactPart:
        tables = _read_tables(place, part, without=(READINGS, OTHERS))
        with reading(place):
            return _checked_root(place, part, facts_of_columns(tables))

    def read_outline(self, place: Path, part: Part, without: Sequence[str] = ()) -> Outline:
        tables = _read_tables(place, part, without=("facts", READINGS, OTHERS, *without))
        with reading(place):
            return outline_of_columns(tables)

    def read_manifests(self, place: Path, part: Part) -> list[Manifest]:
        with reading(place):
            return manifests_of(self.read_table(place, part, BATCHES))

    def read_log(self, place: Path, part: Part) -> LogPart:
        tables = _read_tables(place, part)
        with reading(place):
            return _checked_root(place, part, log_of_columns(tables))

    def read_columns(self, place: Path, part: Part) -> LogColumns | None:
        """The readings of a part in columns; None for a part of an older version."""
        tables = {name: self.read_table(place, part, name) for name in (READINGS, OTHERS)}
        if not all(tables.values()):
            return None
        with reading(place):
            return columns_of(tables[READINGS], tables[OTHERS], part.last - part.first + 1)

    def read_table(self, place: Path, part: Part, name: str) -> Columns:
        """One table of a part; empty where the part has none of that name."""
        return _read_tables(place, part, name).get(name, {})


def part_of(file: Path, kind: str, content: bytes) -> Part:
    """Of the content of a manifest; `file` is its place in the archive."""
    try:
        part = msgspec.json.decode(content, type=Part)
    except msgspec.DecodeError as error:
        raise ArchiveBroken(str(file), str(error)) from error
    if part.format != FORMAT or part.kind != kind or file.parent.name != part.name:
        raise ArchiveBroken(str(file), "it does not match its directory")
    if sealed(part).seal != part.seal or msgspec.json.encode(part) != content:
        raise ArchiveBroken(str(file), "its seal does not match")
    for each in part.files:
        require_plain_name(file, each.name)
    if len({Path(each.name).stem for each in part.files}) < len(part.files):
        raise ArchiveBroken(str(file), "it lists two files of one table")
    if not 0 < part.first <= part.last <= LARGEST:
        raise ArchiveBroken(str(file), f"it ends at {part.last}, before it begins")
    return part


def _read_tables(
    place: Path, part: Part, only: str = "", without: Sequence[str] = ()
) -> dict[str, Columns]:
    tables: dict[str, Columns] = {}
    for known in part.files:
        file = place / known.name
        if (only and file.stem != only) or file.stem in without:
            continue
        content = content_of(file)
        require_checksum(file, content, known.sha256)
        with reading(file):
            tables[file.stem] = format_of(file.suffix).read(content)
    return tables


P = TypeVar("P", FactPart, LogPart)


def _checked_root(place: Path, part: Part, found: P) -> P:
    if root_of(found) != part.root:
        raise ArchiveBroken(str(place), "its bodies do not match its Merkle root")
    return found


def require_same_columns(archive: Archive, place: Path, part: Part, found: FactPart) -> None:
    """Raises if the columns of a part are not those of its messages."""
    columns = archive.read_columns(place, part)
    if columns is not None and tables_of(columns) != tables_of(log_columns(found.records)):
        raise ArchiveBroken(str(place), "its columns are not those of its messages")


class _CachedPart(NamedTuple):
    """The part that was read last."""

    part: Part
    batches: dict[int, Batch]  # by their first position

    def batch_with(self, position: int) -> Batch | None:
        """Mostly it is the first one of the batch, which plans begin."""
        if position in self.batches:
            return self.batches[position]
        within = (each for each in self.batches.values() if _is_of(each.manifest, position))
        return next(within, None)


class ArchivedFacts:
    """Facts from the archive as far as it reaches, then from `rest`."""

    def __init__(self, archive: Archive, rest: FactSource) -> None:
        self._archive = archive
        self._rest = rest
        self._cached: _CachedPart | None = None
        self._is_of_log = False

    async def of(self, manifest: Manifest, streams: frozenset[Stream] = _EVERY) -> list[Record]:
        cached = self._cached_part(manifest)
        if cached is None:
            return await self._rest.of(manifest, streams)
        kept = cached.batch_with(manifest.p_from)
        if kept is None or not _holds(kept.manifest, manifest):
            raise ArchiveBroken(str(self._archive.path), OTHER_LOG)
        if any(place.stream in streams for place in kept.lost):
            raise NeverArchived(str(self._archive.path), manifest.p_from, manifest.p_to)
        chosen = [record for record in kept.records if record.stream in streams]
        if kept.manifest.ranges == manifest.ranges:
            return chosen
        return [each for each in chosen if any(_is_in(each, place) for place in manifest.ranges)]

    async def first_of(self, _: Stream, /) -> int:
        """An archive has all facts from the first one on."""
        return 1

    def begins_at(self, position: int) -> bool:
        return position in self._by_first

    def columns_at(self, position: int, history: History) -> LogColumns | None:
        found = self._by_first.get(position)
        if found is None:
            return None
        self._require_log(history)
        return self._archive.read_columns(*found)

    @cached_property
    def _by_first(self) -> dict[int, tuple[Path, Part]]:
        return {part.first: (place, part) for place, part in self._archive.facts}

    def _require_log(self, history: History) -> None:
        """The newest batch of the archive is one of the log: each names the hash of the one before
        it, so all are."""
        if self._is_of_log:
            return
        place, part = self._archive.facts[-1]
        known = next(history.manifests(part.last, part.last), None)
        newest = manifests_of(self._archive.read_table(place, part, BATCHES))[-1]
        if known is None or known.head != newest.head:
            raise ArchiveBroken(str(self._archive.path), OTHER_LOG)
        self._is_of_log = True

    def _cached_part(self, manifest: Manifest) -> _CachedPart | None:
        if self._cached is not None and _contains(self._cached.part, manifest.p_from):
            return self._cached
        for place, part in self._archive.facts:
            if _contains(part, manifest.p_from):
                found = self._archive.read_facts(place, part)
                batches = {batch.manifest.p_from: batch for batch in found.batches()}
                self._cached = _CachedPart(part, batches)
                return self._cached
        return None


def _holds(whole: Manifest, part: Manifest) -> bool:
    """Whether a manifest, reduced to some of its ranges perhaps, is this one's."""
    return bool(part.ranges) and all(
        any(
            each.stream is kept.stream and kept.first <= each.first and each.last <= kept.last
            for kept in whole.ranges
        )
        for each in part.ranges
    )


def _is_in(record: Record, place: Range) -> bool:
    return record.stream is place.stream and place.first <= record.sequence <= place.last


def _is_of(manifest: Manifest, position: int) -> bool:
    return manifest.p_from <= position <= manifest.p_to


def _contains(part: Part, position: int) -> bool:
    return part.first <= position <= part.last
