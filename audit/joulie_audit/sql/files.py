"""Files in Parquet for a query: those of an archive, and written ones for what it lacks."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.archived_history import Parts
from joulie_audit.archive.columnar import Parquet
from joulie_audit.archive.fact_source import FactSource
from joulie_audit.archive.part_tables import ROW_NAMES, FactPart, LogPart, typed_tables
from joulie_audit.archive.parts import Archive
from joulie_audit.archive.unarchived import entries_by_hour, fact_parts
from joulie_audit.archive.untrusted_files import checksum
from joulie_audit.columns.tables import OF_FACTS, OF_LOG, TypedColumns
from joulie_audit.sql.views import NAMES, STORED
from joulie_bus.errors import ArchiveBroken, QueryNotRun
from joulie_projections.history.history import History

KINDS = {table.name: table.kinds for table in STORED}
_OF_FACTS = {table.name for table in (*OF_FACTS, NAMES)}
_OF_LOG = {table.name for table in OF_LOG}
Progress = Callable[[int, int], None]  # positions done, positions in total


class Files:
    """By table, for the tables that a query needs. `written` is a directory for what is written."""

    def __init__(self, tables: Collection[str], written: Path) -> None:
        self._tables = tables
        self._written = written
        self._parquet = Parquet()
        self.by_table: dict[str, list[Path]] = defaultdict(list)
        self._archive: Archive | None = None
        self._facts_to = self._log_to = 0
        self.lost = 0  # messages that left their stream before they were archived

    def add_archive(self, archive: Archive) -> None:
        """Its parts are one chain, and each file has the checksum that its part names."""
        self._archive = archive
        if self._needs(_OF_FACTS):
            self._facts_to = self._add_parts(archive.facts)
        if self._needs(_OF_LOG):
            self._log_to = self._add_parts(archive.log)

    def _add_parts(self, parts: Parts) -> int:
        for place, part in parts:
            for known in part.files:
                file = place / known.name
                if file.stem in self._tables:
                    _require_readable(file, known.sha256)
                    self.by_table[file.stem].append(file)
        return parts[-1][1].last if parts else 0

    async def add_log(
        self, history: History, facts: FactSource, progress: Progress | None = None
    ) -> None:
        """What the archive lacks. Raises ArchiveBroken if it is of another log."""
        if self._archive is not None and self._archive.facts:
            ArchivedFacts(self._archive, facts).require_log(history)
        if self._needs(_OF_FACTS):
            newest = history.checkpoint()
            async for _, part in fact_parts(history, facts, self._facts_to + 1):
                self._add_part(part)
                self.lost += sum(place.count for place in part.lost)
                if progress is not None and newest is not None:
                    progress(part.manifests[-1].p_to, newest.position)
        if self._needs(_OF_LOG):
            for _, entries in entries_by_hour(history, self._log_to + 1):
                self._add_part(LogPart(entries, []))

    def _add_part(self, part: FactPart | LogPart) -> None:
        tables = dict(typed_tables(part))
        if isinstance(part, FactPart):
            tables[ROW_NAMES] = NAMES.filled(part.names)
        self.add(tables)

    def add(self, tables: Mapping[str, TypedColumns]) -> None:
        for name, columns in tables.items():
            if name in self._tables and len(next(iter(columns.values()))):
                file = self._written / f"{name}-{len(self.by_table[name])}{Parquet.suffix}"
                self._parquet.write(file, columns, KINDS[name])
                self.by_table[name].append(file)

    def _needs(self, tables: Iterable[str]) -> bool:
        return any(name in self._tables for name in tables)


def needs_log(tables: Iterable[str]) -> bool:
    return any(name in _OF_FACTS | _OF_LOG for name in tables)


def _require_readable(file: Path, sha256: str) -> None:
    if file.suffix != Parquet.suffix:
        raise QueryNotRun(
            f"{file} is no Parquet, but a plain segment.",
            "Archive with the extra `archive` from now on: other engines do not read segments.",
        )
    if checksum(file) != sha256:
        raise ArchiveBroken(str(file), "its SHA-256 does not match")
