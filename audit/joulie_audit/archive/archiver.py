"""Writes the archive in whole hours; reads every part back before it counts as archived."""

import contextlib
import shutil
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from joulie_audit.archive.columnar import Format
from joulie_audit.archive.combined_history import require_covering
from joulie_audit.archive.fact_source import FactSource
from joulie_audit.archive.part_tables import (
    FactPart,
    LogPart,
    columns_of_facts,
    columns_of_log,
    root_of,
)
from joulie_audit.archive.parts import (
    FACTS,
    LOG,
    MANIFEST,
    Archive,
    File,
    Part,
    require_same_columns,
    sealed,
)
from joulie_audit.archive.untrusted_files import checksum
from joulie_audit.columns.facts import rows_of_reading
from joulie_audit.columns.tables import KINDS, Columns
from joulie_audit.workers import uncollected
from joulie_bus.errors import AgedOut, ArchiveBroken, NotArchived, PassedOver
from joulie_bus.runtime.own_files import sync
from joulie_bus.runtime.secret_files import OTHERS, make_private, tighten
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.keyring import Ring
from joulie_projections.fold.commit import Snapshot
from joulie_projections.fold.joins import Joins
from joulie_projections.fold.manifest import Manifest, Range
from joulie_projections.history.history import History, StoredEntry

HOUR_NS = 3_600_000_000_000
PART_ROWS = 100_000  # facts: a reader holds one part in memory, and reads it for one snapshot
PART_READ_ROWS = 500_000  # of cards and pods in readings: two minutes of 5,000 nodes with 50 pods
PART_ENTRIES = 20_000  # entries are larger
UNARCHIVED = "Nothing from there on was archived, so nothing is trimmed and the stream keeps them."


class ArchiveResult(NamedTuple):
    parts: int
    facts_to: int
    log_to: int
    lost: int = 0  # messages that had aged out of their stream before they were archived


class _Reading:
    """The facts of one part. What has aged out of its stream is lost: the archive continues behind
    it, because an archive that stops is never followed by a trim, and then everything fills.
    """

    def __init__(self, facts: FactSource, begins: dict[Stream, int]) -> None:
        """`begins`: the first message that a stream still holds, as far as it is known."""
        self._facts = facts
        self._begins = begins
        self.manifests: list[Manifest] = []
        self.records: list[Record] = []
        self.lost: list[Range] = []
        self._rows = 0  # of cards and pods

    @property
    def is_full(self) -> bool:
        return self._rows >= PART_READ_ROWS

    async def add(self, manifest: Manifest) -> None:
        before = len(self.records)
        await self._read(manifest)
        self.manifests.append(manifest)
        self._rows += sum(map(rows_of_reading, self.records[before:]))

    async def _read(self, manifest: Manifest) -> None:
        if not any(map(self._is_lost, manifest.ranges)):
            with contextlib.suppress(AgedOut):
                self.records.extend(await self._facts.of(manifest))
                return
        for stream in {place.stream: None for place in manifest.ranges}:
            await self._add_of(manifest, stream)

    async def _add_of(self, manifest: Manifest, stream: Stream) -> None:
        """One stream of a manifest, as a whole: a batch is short."""
        places = [place for place in manifest.ranges if place.stream is stream]
        if not any(map(self._is_lost, places)):
            try:
                self.records.extend(await self._facts.of(manifest, frozenset((stream,))))
                return
            except AgedOut as error:
                self._begins[stream] = error.first
        self.lost.extend(places)

    def _is_lost(self, place: Range) -> bool:
        return place.first < self._begins.get(place.stream, 0)


class Archiver:
    """`before` excludes unfinished hours: no data of that time or later is written.

    `ring` are the keys of the log: heads that none of them signed are left out. Each statement
    about them goes into the part with the entry after its own: that entry is signed, and so
    archived, after the statement was made.
    """

    def __init__(self, path: Path, file_format: Format, before: int, ring: Ring) -> None:
        with writing(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            (path / FACTS).mkdir(exist_ok=True)
            (path / LOG).mkdir(exist_ok=True)
        if path.stat().st_mode & OTHERS:  # the directory existed, and other users may enter it
            files = [file for kind in (FACTS, LOG) for file in (path / kind).rglob("*")]
            tighten(*(file for file in files if file.is_file()))
        self._archive = Archive.of(path)
        self._file_format = file_format
        self._before = before
        self._ring = ring
        self._parts = self._lost = 0

    async def run(self, history: History, facts: FactSource) -> ArchiveResult:
        if (cut := history.cut()) is not None:
            require_covering(self._archive, cut)
        facts_to = await self._keep_facts(history, facts)
        log_to = self._keep_log(history)
        return ArchiveResult(self._parts, facts_to, log_to, self._lost)

    async def _keep_facts(self, history: History, facts: FactSource) -> int:
        last = self._last(FACTS)
        created, aside = _created(history), history.quarantined()
        begins: dict[Stream, int] = {}
        joins = Joins(earlier=self._read_to)
        for hour, manifests in _facts_by_hour(history.manifests(last.last + 1)):
            if (hour + 1) * HOUR_NS > self._before:
                break
            async for reading in _read_in_parts(manifests, joins, facts, begins):
                span = reading.manifests[0].p_from, reading.manifests[-1].p_to
                inside = [poison for poison in aside if span[0] <= poison.position <= span[1]]
                snapshots, lost = _snapshot_in(history, span), tuple(reading.lost)
                names = tuple(history.row_name_changes(*span))
                found = FactPart(reading.manifests, reading.records, inside, snapshots, lost, names)
                self._lost += sum(place.last - place.first + 1 for place in lost)
                last = self._write(FACTS, hour, span, last, found, created)
        return last.last

    def _read_to(self, stream: Stream) -> int:
        """The last message of the stream that the archive has a manifest of."""
        for place, part in reversed(self._archive.parts(FACTS)):
            for manifest in reversed(self._archive.read_manifests(place, part)):
                for each in reversed(manifest.ranges):
                    if each.stream is stream:
                        return each.last
        return 0

    def _keep_log(self, history: History) -> int:
        """Archives only entries that a signed head covers."""
        last, heads = self._last(LOG), self._ring.valid(history.heads())
        signed_to = heads[-1].pos if heads else 0
        for hour, entries in _log_by_hour(history.entries(last.last + 1, signed_to)):
            if (hour + 1) * HOUR_NS > self._before:
                break
            span = entries[0].pos, entries[-1].pos
            covered = [head for head in heads if span[0] <= head.pos <= span[1]]
            keys = tuple(
                each for each in self._ring.statements if span[0] <= each.pos + 1 <= span[1]
            )
            last = self._write(LOG, hour, span, last, LogPart(entries, covered, keys), {})
        return last.last

    def _last(self, kind: str) -> Part:
        parts = self._archive.parts(kind)
        return parts[-1][1] if parts else Part.before_the_first(kind)

    def _write(
        self,
        kind: str,
        hour: int,
        span: tuple[int, int],
        before: Part,
        found: FactPart | LogPart,
        created: Mapping[str, str],
    ) -> Part:
        day = datetime.fromtimestamp(hour * 3600, UTC)
        part = Part(
            kind=kind,
            first=span[0],
            last=span[1],
            files=[],
            root=root_of(found),
            prev=before.seal,
            created=dict(created),
        )
        place = self._archive.path / kind / f"{day:%Y-%m-%d}" / f"{day:%H}" / part.name
        with uncollected(), writing(self._archive.path):
            part = self.written(place, part, found)
        self._parts += 1
        return part

    def written(self, place: Path, part: Part, found: FactPart | LogPart) -> Part:
        """Writes a part, and reads it back: the part with its files and its seal."""
        draft = place.with_name(f".{part.name}.new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700, parents=True)
        columns = columns_of_facts(found) if isinstance(found, FactPart) else columns_of_log(found)
        files = [self._write_file(draft, name, table) for name, table in columns.items()]
        part = sealed(msgspec.structs.replace(part, files=files))
        write_durably(draft / MANIFEST, msgspec.json.encode(part))
        self._read_back(draft, part, found)
        place_durably(draft, place)
        return part

    def _write_file(self, place: Path, name: str, columns: Columns) -> File:
        file = place / f"{name}{self._file_format.suffix}"
        make_private(file)
        self._file_format.write(file, columns, KINDS.get(name, {}))
        sync(file)
        rows = len(next(iter(columns.values())))
        return File(name=file.name, rows=rows, sha256=checksum(file))

    def _read_back(self, place: Path, part: Part, written: FactPart | LogPart) -> None:
        read = self._archive.read_facts if isinstance(written, FactPart) else self._archive.read_log
        if read(place, part) != written:
            raise ArchiveBroken(str(place), "reading it back gives other content")
        require_same_columns(self._archive, place, part, written)


async def _read_in_parts(
    manifests: Iterable[Manifest], joins: Joins, facts: FactSource, begins: dict[Stream, int]
) -> AsyncIterator[_Reading]:
    reading = _Reading(facts, begins)
    for manifest in manifests:
        if what := joins.flaw(manifest):
            raise PassedOver(what, UNARCHIVED)
        await reading.add(manifest)
        if reading.is_full:
            yield reading
            reading = _Reading(facts, begins)
    if reading.manifests:
        yield reading


def _snapshot_in(history: History, span: tuple[int, int]) -> tuple[Snapshot, ...]:
    """The newest snapshot of the span; the database keeps only recent ones."""
    found = history.snapshot_before(span[1])
    return (found,) if found is not None and found.position >= span[0] else ()


def _created(history: History) -> dict[str, str]:
    checkpoint = history.checkpoint()
    inputs = checkpoint.inputs if checkpoint else {}
    return {str(stream): read.created for stream, read in inputs.items()}


def _facts_by_hour(manifests: Iterable[Manifest]) -> Iterator[tuple[int, list[Manifest]]]:
    batch: list[Manifest] = []
    hour = rows = 0
    for manifest in manifests:
        this_hour = manifest.committed_at // HOUR_NS
        if batch and (this_hour != hour or rows >= PART_ROWS):
            yield hour, batch
            batch, rows = [], 0
        hour = this_hour
        batch.append(manifest)
        rows += manifest.p_to - manifest.p_from + 1
    if batch:
        yield hour, batch


def _log_by_hour(entries: Iterable[StoredEntry]) -> Iterator[tuple[int, list[StoredEntry]]]:
    """The hour never decreases, because the clocks of replicas differ a little."""
    batch: list[StoredEntry] = []
    hour = 0
    for entry in entries:
        this_hour = max(hour, entry.decided_at // HOUR_NS)
        if batch and (this_hour != hour or len(batch) >= PART_ENTRIES):
            yield hour, batch
            batch = []
        hour = this_hour
        batch.append(entry)
    if batch:
        yield hour, batch


@contextlib.contextmanager
def writing(archive: Path) -> Generator[None, None, None]:
    """Raises NotArchived for a full disk, a missing right and the like."""
    try:
        yield
    except OSError as error:
        raise NotArchived(str(archive), error.strerror or str(error)) from error


def place_durably(draft: Path, place: Path) -> None:
    """A power failure must not take the folders of a part after which a trim has deleted."""
    sync(draft)
    draft.rename(place)
    for folder in (place.parent, place.parent.parent, place.parent.parent.parent):
        sync(folder)


def write_durably(file: Path, content: bytes) -> None:
    make_private(file)
    file.write_bytes(content)
    sync(file)
