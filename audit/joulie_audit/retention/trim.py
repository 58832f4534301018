"""Gives room back: what an archive holds leaves the streams and the database, behind a cut.

    read the archive again and compare it with the database, row by row
    record the cut             one row; from here on readers go by it
    purge the streams          up to what the cut says
    delete the rows            in front of the cut, in portions
    give back the pages        SQLite only

Each step may be the last one before a crash: a later run does again what the newest cut still asks
for. Nothing is cut that the archive does not hold, that no signed head anchored outside the
database covers, that is younger than the keep window, or that a reader of the rest needs.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from joulie_audit.archive.parts import Archive
from joulie_audit.retention.cut_points import Grounds, Wish, next_cut, set_aside_in
from joulie_audit.retention.trim_streams import Purged, PurgingLog, bounds_of, purge_to
from joulie_bus.streams.subjects import Subjects
from joulie_projections.decision_log.keyring import Ring
from joulie_projections.decision_log.signed import Head
from joulie_projections.fold.commit import Cut
from joulie_projections.history.history import History
from joulie_projections.history.trimming import TrimStore

Reading = Callable[[], contextlib.AbstractContextManager[History]]


class Trimmed(NamedTuple):
    cut: Cut | None  # the newest one; None: nothing was ever cut
    is_new: bool
    rows: int
    messages: dict[str, int]  # purged, by stream
    freed: int  # bytes of the database file
    denied: list[str]


class Trimmer:
    def __init__(self, archive: Archive, store: TrimStore, reading: Reading, public: Ring) -> None:
        self._archive = archive
        self.store = store
        self._reading = reading
        self._public = public

    async def run(
        self, bus: PurgingLog, subjects: Subjects, anchored: Sequence[Head], wish: Wish
    ) -> Trimmed:
        is_new = self.cut(anchored, wish)
        purged = await self.purge(bus, subjects)
        rows = await _paced(self.store.drop(self.set_aside()))
        freed = await _paced(self.store.release_pages())
        cut = self.store.newest()
        return Trimmed(cut, is_new, rows, purged.messages, freed, purged.denied)

    def cut(self, anchored: Sequence[Head], wish: Wish) -> bool:
        """Whether there is a new one."""
        due = self.store.oldest_due()
        with self._reading() as history:
            made = next_cut(history, Grounds(self._archive, anchored, self._public, due), wish)
        if made is not None:
            self.store.record(made)
        return made is not None

    def set_aside(self) -> list[int]:
        """What of the quarantine in front of the newest cut the archive holds."""
        with self._reading() as history:
            cut = history.cut()
            held = {poison.position for poison in history.quarantined()}
        if cut is None or not any(position <= cut.p_to for position in held):
            return []
        return sorted(held.intersection(set_aside_in(self._archive, cut.p_to)))

    async def purge(self, bus: PurgingLog, subjects: Subjects) -> Purged:
        with self._reading() as history:
            cut = history.cut()
            bounds = await bounds_of(bus, subjects, history, cut) if cut else []
        return await purge_to(bus, bounds)


async def _paced(portions: Iterator[int]) -> int:
    """Their sum. After each a pause as long as it took, so that other writers get their turn."""
    total, begun = 0, time.monotonic()
    for portion in portions:
        total += portion
        await asyncio.sleep(time.monotonic() - begun)
        begun = time.monotonic()
    return total
