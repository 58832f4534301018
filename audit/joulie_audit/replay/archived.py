"""Replays an archive alone: without the database and the streams that it was written from."""

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.combined_history import Sources
from joulie_audit.archive.fact_source import FactSource
from joulie_audit.archive.parts import Archive
from joulie_audit.archive.restore import restore_at
from joulie_audit.replay.replay import (
    WHOLE_LOG,
    Progress,
    ReplayReport,
    Scope,
    WorkerSource,
    replay,
)
from joulie_bus.errors import NotInTheLog
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import History


@dataclass(frozen=True)
class ArchiveAlone:
    """Opens the facts of an archive; can be pickled."""

    path: Path

    def __call__(self, _: History) -> contextlib.AbstractAsyncContextManager[FactSource]:
        return contextlib.nullcontext(ArchivedFacts(Archive.of(self.path), _Nothing(self.path)))


@dataclass(frozen=True)
class _Nothing:
    """The facts after an archive."""

    archive: Path

    async def of(
        self, manifest: Manifest, streams: frozenset[Stream] = frozenset(MERGE_ORDER)
    ) -> list[Record]:
        named = " and ".join(sorted(streams))
        raise NotInTheLog(f"{self.archive} holds nothing of {named} from {manifest.p_from} on.")


async def replay_alone(
    path: Path, scope: Scope = WHOLE_LOG, progress: Progress | None = None
) -> ReplayReport:
    """Restores the archive into a database of its own, which checks every part, and replays it.

    The database is temporary, and about as large as that of the projector.
    """
    with tempfile.TemporaryDirectory(prefix="joulie-replay-") as directory:
        sources = Sources(Path(directory) / "joulie.db", None)
        restore_at(sources.database, Archive.of(path))
        opener = ArchiveAlone(path)
        with sources.reading() as history:
            async with opener(history) as facts:
                return await replay(history, facts, scope, progress, WorkerSource(sources, opener))
