"""Frees space: deletes what an archive holds from the streams and the database, up to a cut.

    read the archive again and compare it with the database, row by row
    record the cut             one row; readers respect it from now on
    purge the streams          up to the cut
    delete the rows            before the cut, in portions
    release the pages          SQLite only

A crash may follow any step: a later run completes the newest cut. Data is cut only if the archive
holds it, a signed head that is anchored outside the database covers it, it is older than the keep
window, and no reader of the remaining log needs it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from joulie_audit.archive.parts import Archive
from joulie_audit.retention.cut_points import CutEvidence, CutOptions, next_cut, set_aside_in
from joulie_audit.retention.trim_streams import (
    Purged,
    PurgingLog,
    decisions_continued,
    purge_bounds,
    purge_to,
)
from joulie_bus.streams.subjects import Subjects
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.signed import Head
from joulie_projections.fold.commit import Cut
from joulie_projections.history.history import History
from joulie_projections.history.trimming import TrimStore

OpenHistory = Callable[[], contextlib.AbstractContextManager[History]]


class Trimmed(NamedTuple):
    cut: Cut | None  # the newest one; None: the log was never cut
    is_new: bool
    rows: int
    messages: dict[str, int]  # purged, by stream
    freed: int  # bytes of the database file
    denied: list[str]


class Trimmer:
    def __init__(
        self, archive: Archive, store: TrimStore, open_history: OpenHistory, public: Ring
    ) -> None:
        self._archive = archive
        self.store = store
        self._open_history = open_history
        self._public = public

    async def run(
        self, bus: PurgingLog, subjects: Subjects, anchored: Sequence[Head], options: CutOptions
    ) -> Trimmed:
        is_new = self.cut(anchored, options)
        purged = await self.purge(bus, subjects)
        rows = await _paced(self.store.drop(self.set_aside()))
        freed = await _paced(self.store.release_pages())
        cut = self.store.newest()
        return Trimmed(cut, is_new, rows, purged.messages, freed, purged.denied)

    def cut(self, anchored: Sequence[Head], options: CutOptions) -> bool:
        """Records the next cut; returns whether there is one."""
        due = self.store.oldest_due()
        with self._open_history() as history:
            made = next_cut(
                history, CutEvidence(self._archive, anchored, self._public, due), options
            )
        if made is not None:
            self.store.record(made)
        return made is not None

    def set_aside(self) -> list[int]:
        """Quarantined positions before the newest cut that the archive holds."""
        with self._open_history() as history:
            cut = history.cut()
            held = {poison.position for poison in history.quarantined()}
        if cut is None or not any(position <= cut.p_to for position in held):
            return []
        return sorted(held.intersection(set_aside_in(self._archive, cut.p_to)))

    async def purge(self, bus: PurgingLog, subjects: Subjects) -> Purged:
        with self._open_history() as history:
            if (cut := history.cut()) is None:
                return Purged({}, [])
            continued = decisions_continued(self._archive)
            bounds = await purge_bounds(bus, subjects, history, cut, continued)
        return await purge_to(bus, bounds)


async def _paced(portions: Iterator[int]) -> int:
    """The sum of the portions. Pacing: sleeps after each as long as it took, for other writers."""
    total, begun = 0, time.monotonic()
    for portion in portions:
        total += portion
        await asyncio.sleep(time.monotonic() - begun)
        begun = time.monotonic()
    return total
