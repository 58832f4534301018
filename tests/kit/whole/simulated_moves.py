"""A log that is archived and trimmed, and continues in another database: the real code of each."""

from pathlib import Path

from simulated_components import Surroundings
from simulated_database import files_of, migrated, with_ledger

from bus_kit.memory_broker import MemoryLog
from joulie_audit.archive.archiver import Archiver
from joulie_audit.archive.columnar import Segment
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import StreamFacts
from joulie_audit.archive.parts import Archive
from joulie_audit.archive.restore import RestoreOptions, restore_at
from joulie_audit.archive.restore_plan import holes_of
from joulie_audit.retention.cut_points import CutOptions
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log.heads import Signer
from joulie_projections.history.trimming import TrimStore
from joulie_projections.projector.trim_streams import anchored_heads
from joulie_projections.store import database
from joulie_projections.store.copying import copy_database, copy_ledger
from trim_kit import ArchiveTrim, Trim

MOVE = "trimmed, and moved to another database"
RESTORE = "trimmed, and restored from the archive"
HOLE = "restored from an archive that lacks readings"
KEPT_OUT = 2**62  # no hour is unfinished


class Move:
    """While no projector runs, as the pages of docs require. What is trimmed was archived before,
    and the archive has grown since.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._kept_at = 0  # nothing is trimmed that was stored later
        self._file = around.database.file
        self._archive = archive_of(around)
        self._bus = MemoryLog(around.broker.broker)

    async def keep(self) -> None:
        self._kept_at = self._around.database.clock()
        await self._keep()

    def age_out(self) -> None:
        """The archiver is away, while all readings that were folded leave their stream."""
        found = self._around.database.committed()
        if found is not None and Stream.TEL in found.inputs:
            self._bus.broker.trim(Stream.TEL, found.inputs[Stream.TEL].sequence)

    async def carry_out(self, kind: str, *, is_whole: bool) -> None:
        await self._keep()
        if not self._would_come_back():
            self._around.record("the archive ends in a hole, so nothing is restored from it")
            return
        done = await self._trim()
        self._around.record(f"trimmed to entry {done.cut.pos}" if done.cut else "nothing to trim")
        other = self._file.with_name("other.db")
        if kind == MOVE:
            self._copy(other)
        else:
            self._restore(other, RestoreOptions(is_whole=is_whole))
        self._around.database.continue_with(with_ledger(other))
        for file in files_of(other):
            file.unlink()

    def _would_come_back(self) -> bool:
        """As `verify --archive` says beforehand."""
        archive = Archive.of(self._archive)
        return all(hole.is_closed for hole in holes_of(archive))

    async def _keep(self) -> None:
        with self._sources().reading() as history:
            async with StreamFacts.on(self._bus, history) as facts:
                ring = Signer.of(self._around.key).public
                await Archiver(self._archive, Segment(), KEPT_OUT, ring).run(history, facts)

    async def _trim(self) -> Trim:
        around, engine = self._around, database.trimmer(self._file)
        try:
            archive, public = Archive.of(self._archive), Signer.of(around.key).public
            trimmer = ArchiveTrim(archive, TrimStore(engine), self._sources().reading, public)
            anchored = await anchored_heads(self._bus, 1000)
            options = CutOptions(self._kept_at, "all")
            return await trimmer.run(self._bus, anchored, options, around.database.clock())
        finally:
            engine.dispose()

    def _sources(self) -> Sources:
        return Sources(self._file)

    def _copy(self, other: Path) -> None:
        reader, owner = database.reader(self._file), database.migrator(migrated(other))
        from_ledger = database.ledger_reader(self._file)
        to_ledger = database.ledger_owner(other)
        try:
            copy_ledger(from_ledger, to_ledger)
            copy_database(reader, owner)
        finally:
            for engine in (from_ledger, to_ledger, reader, owner):
                engine.dispose()

    def _restore(self, other: Path, options: RestoreOptions) -> None:
        self._around.database.is_restored = True
        done = restore_at(migrated(other), Archive.of(self._archive), options)
        for hole in done.holes:
            self._around.record(f"restored with a hole: {hole.first} to {hole.last}: {hole.lost}")


def archive_of(around: Surroundings) -> Path:
    return around.directory / "archive"


def lost_readings(archive: Archive) -> set[int]:
    """The numbers of those that had left their stream before they were archived."""
    lost = [
        each for place, part in archive.facts for each in archive.read_outline(place, part).lost
    ]
    assert {each.stream for each in lost} <= {Stream.TEL}
    return {number for each in lost for number in range(each.first, each.last + 1)}
