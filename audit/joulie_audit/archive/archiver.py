"""Writes the archive in whole hours; reads every part back before it counts as archived."""

import contextlib
import shutil
from collections.abc import Generator, Mapping
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
    typed_tables,
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
from joulie_audit.archive.unarchived import entries_by_hour, fact_parts
from joulie_audit.archive.untrusted_files import checksum
from joulie_audit.columns.tables import KINDS, TypedColumns
from joulie_audit.workers import uncollected
from joulie_bus.errors import ArchiveBroken, NotArchived
from joulie_bus.runtime.own_files import sync
from joulie_bus.runtime.secret_files import OTHERS, make_private, tighten
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.keyring import Ring
from joulie_projections.fold.joins import Joins
from joulie_projections.history.history import History


class ArchiveResult(NamedTuple):
    parts: int
    facts_to: int
    log_to: int
    lost: int = 0  # messages that had aged out of their stream before they were archived


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
        created, joins = _created(history), Joins(earlier=self._read_to)
        async for hour, found in fact_parts(history, facts, last.last + 1, joins, self._before):
            span = found.manifests[0].p_from, found.manifests[-1].p_to
            self._lost += sum(place.count for place in found.lost)
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
        for hour, entries in entries_by_hour(history, last.last + 1, signed_to, self._before):
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

    def _write_file(self, place: Path, name: str, columns: TypedColumns) -> File:
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
        require_same_columns(self._archive, place, part, typed_tables(written))


def _created(history: History) -> dict[str, str]:
    checkpoint = history.checkpoint()
    inputs = checkpoint.inputs if checkpoint else {}
    return {str(stream): read.created for stream, read in inputs.items()}


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
