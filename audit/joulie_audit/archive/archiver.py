"""Writes the archive: whole hours, read back and compared before anything counts as kept."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from joulie_audit.archive.columnar import Columns, Format
from joulie_audit.archive.combined_history import require_reaching
from joulie_audit.archive.fact_source import Facts
from joulie_audit.archive.parts import (
    FACTS,
    LOG,
    MANIFEST,
    Archive,
    FactPart,
    File,
    LogPart,
    Part,
    checksum,
    columns_of_facts,
    columns_of_log,
    root_of,
    sealed,
)
from joulie_bus.errors import ArchiveBroken
from joulie_bus.runtime.secret_files import OTHERS, make_private, tighten
from joulie_bus.streams.records import Record
from joulie_projections.decision_log.signed import KeyStatement
from joulie_projections.fold.manifest import Manifest
from joulie_projections.fold.snapshots import Snapshot
from joulie_projections.history.history import History, StoredEntry

HOUR_NS = 3_600_000_000_000
PART_ROWS = 100_000  # facts: what one reader holds in memory, and reads for a single moment
PART_ENTRIES = 20_000  # the same for entries, which are larger


class Archived(NamedTuple):
    parts: int
    facts_to: int
    log_to: int


class Archiver:
    """`before` cuts off what is not over yet: nothing of that hour or later is written.

    `keys` is what was said of the log's keys. Each statement goes into the part with the entry
    behind its own: that entry is signed, and so archived, after it was said.
    """

    def __init__(
        self, path: Path, form: Format, before: int, keys: Sequence[KeyStatement] = ()
    ) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (path / FACTS).mkdir(exist_ok=True)
        (path / LOG).mkdir(exist_ok=True)
        if path.stat().st_mode & OTHERS:  # it was there before, and others may enter it
            files = [file for kind in (FACTS, LOG) for file in (path / kind).rglob("*")]
            tighten(*(file for file in files if file.is_file()))
        self._archive = Archive.of(path)
        self._form = form
        self._before = before
        self._keys = keys
        self._parts = 0

    async def run(self, history: History, facts: Facts) -> Archived:
        if (cut := history.cut()) is not None:
            require_reaching(self._archive, cut)
        facts_to = await self._keep_facts(history, facts)
        log_to = self._keep_log(history)
        return Archived(self._parts, facts_to, log_to)

    async def _keep_facts(self, history: History, facts: Facts) -> int:
        last = self._last(FACTS)
        created, aside = _created(history), history.quarantined()
        for hour, manifests in _facts_by_hour(history.manifests(last.last + 1)):
            if (hour + 1) * HOUR_NS > self._before:
                break
            records: list[Record] = []
            for manifest in manifests:
                records.extend(await facts.of(manifest))
            span = manifests[0].p_from, manifests[-1].p_to
            inside = [poison for poison in aside if span[0] <= poison.position <= span[1]]
            found = FactPart(manifests, records, inside, _snapshot_in(history, span))
            last = self._write(FACTS, hour, span, last, found, created)
        return last.last

    def _keep_log(self, history: History) -> int:
        """Only entries that a signed head covers."""
        last, heads = self._last(LOG), history.heads()
        signed_to = heads[-1].pos if heads else 0
        for hour, entries in _log_by_hour(history.entries(last.last + 1, signed_to)):
            if (hour + 1) * HOUR_NS > self._before:
                break
            span = entries[0].pos, entries[-1].pos
            covered = [head for head in heads if span[0] <= head.pos <= span[1]]
            keys = tuple(said for said in self._keys if span[0] <= said.pos + 1 <= span[1])
            last = self._write(LOG, hour, span, last, LogPart(entries, covered, keys), {})
        return last.last

    def _last(self, kind: str) -> Part:
        parts = self._archive.parts(kind)
        none = Part(kind=kind, first=0, last=0, files=[], root="", prev="")
        return parts[-1][1] if parts else none

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
        beside = place.with_name(f".{part.name}.new")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(mode=0o700, parents=True)
        columns = columns_of_facts(found) if isinstance(found, FactPart) else columns_of_log(found)
        files = [self._write_file(beside, name, table) for name, table in columns.items()]
        part = sealed(msgspec.structs.replace(part, files=files))
        _write_durably(beside / MANIFEST, msgspec.json.encode(part))
        self._read_back(beside, part, found)
        beside.rename(place)
        _sync(place.parent)
        self._parts += 1
        return part

    def _write_file(self, place: Path, name: str, columns: Columns) -> File:
        file = place / f"{name}{self._form.suffix}"
        make_private(file)
        self._form.write(file, columns)
        _sync(file)
        rows = len(next(iter(columns.values())))
        return File(name=file.name, rows=rows, sha256=checksum(file))

    def _read_back(self, place: Path, part: Part, written: FactPart | LogPart) -> None:
        read = self._archive.read_facts if isinstance(written, FactPart) else self._archive.read_log
        if read(place, part) != written:
            raise ArchiveBroken(str(place), "it does not read back as what was written")


def _snapshot_in(history: History, span: tuple[int, int]) -> tuple[Snapshot, ...]:
    """The newest one: the database keeps only the last ones of all."""
    found = history.snapshot_before(span[1])
    return (found,) if found is not None and found.position >= span[0] else ()


def _created(history: History) -> dict[str, str]:
    checkpoint = history.checkpoint()
    inputs = checkpoint.inputs if checkpoint else {}
    return {str(stream): read.created for stream, read in inputs.items()}


def _facts_by_hour(manifests: Iterable[Manifest]) -> Iterator[tuple[int, list[Manifest]]]:
    held: list[Manifest] = []
    hour = rows = 0
    for manifest in manifests:
        here = manifest.committed_at // HOUR_NS
        if held and (here != hour or rows >= PART_ROWS):
            yield hour, held
            held, rows = [], 0
        hour = here
        held.append(manifest)
        rows += manifest.p_to - manifest.p_from + 1
    if held:
        yield hour, held


def _log_by_hour(entries: Iterable[StoredEntry]) -> Iterator[tuple[int, list[StoredEntry]]]:
    """Replicas' clocks differ a little; the newest moment seen so far says which hour it is."""
    held: list[StoredEntry] = []
    hour = 0
    for entry in entries:
        here = max(hour, entry.decided_at // HOUR_NS)
        if held and (here != hour or len(held) >= PART_ENTRIES):
            yield hour, held
            held = []
        hour = here
        held.append(entry)
    if held:
        yield hour, held


def _write_durably(file: Path, content: bytes) -> None:
    make_private(file)
    file.write_bytes(content)
    _sync(file)


def _sync(place: Path) -> None:
    opened = os.open(place, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
