"""A `History` over the parts of an archive, up to a cut."""

import contextlib
import itertools
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from joulie_audit.archive.index import indexed
from joulie_audit.archive.part_tables import BATCHES, SNAPSHOTS, manifests_of, snapshots_of
from joulie_audit.archive.parts import Archive, Part
from joulie_bus.errors import ArchiveBroken
from joulie_projections.fold.commit import Cut, Snapshot
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.archive_index import IndexedHistory
from joulie_projections.history.history import NEWEST, History, StoredEntry

CACHED_PARTS = 3  # replicas ship late, so decisions of one view lie in several parts
T = TypeVar("T")
Parts = list[tuple[Path, Part]]


class _PartCache(Generic[T]):
    """Caches the contents of the parts that were read last."""

    def __init__(self, load: Callable[[Path, Part], T]) -> None:
        self._load = load
        self._cached: OrderedDict[str, T] = OrderedDict()

    def of(self, place: Path, part: Part) -> T:
        if part.seal not in self._cached:
            self._cached[part.seal] = self._load(place, part)
            if len(self._cached) > CACHED_PARTS:
                self._cached.popitem(last=False)
        self._cached.move_to_end(part.seal)
        return self._cached[part.seal]


class ArchivedHistory(IndexedHistory):
    """Reads everything from parts, with their integrity checks."""

    def __init__(self, index: History, archive: Archive, cut: Cut) -> None:
        super().__init__(index, cut)
        self._cut = cut
        self._archive = archive
        self._facts: Parts = [(at, part) for at, part in archive.facts if part.first < cut.p_to]
        self._log: Parts = [(at, part) for at, part in archive.log if part.first < cut.pos]
        self._entries = _PartCache(lambda at, part: archive.read_log(at, part).entries)
        self._manifests = _PartCache(self._load_manifests)

    @classmethod
    @contextlib.contextmanager
    def within(cls, archive: Archive, cut: Cut) -> Generator["ArchivedHistory", None, None]:
        with indexed(archive) as file, History.of(file) as index:
            yield cls(index, archive, cut)

    def entry_at(self, pos: int) -> StoredEntry:
        for place, part in _from(self._log, pos):
            return self._entries.of(place, part)[pos - part.first]
        raise ArchiveBroken(str(self._archive.path), f"entry {pos} is in its index but in no part")

    # --- manifests ----------------------------------------------------------------------------

    def manifests(self, first: int = 1, last: int = NEWEST) -> Iterator[Manifest]:
        for place, part in _from(self._facts, first):
            if part.first > last:
                return
            for manifest in self._manifests.of(place, part):
                if manifest.p_to >= first and manifest.p_from <= last:
                    yield manifest

    def manifests_back(self, last: int = NEWEST) -> Iterator[Manifest]:
        for place, part in reversed(self._facts):
            if part.first <= last:
                found = self._manifests.of(place, part)
                yield from (each for each in reversed(found) if each.p_from <= last)

    def manifest_by(self, time_ns: int) -> Manifest | None:
        begun = self.parts_begun_by(time_ns)
        for place, part in reversed(self._facts):
            for each in reversed(self._manifests.of(place, part) if part.seal in begun else ()):
                if each.committed_at <= time_ns:
                    return each
        return None

    def position_by(self, time: int) -> int:
        found = self.manifest_by(time)
        return found.p_to if found else 0

    def commit_time_range(self) -> tuple[int, int] | None:
        first, last = next(self.manifests(), None), next(self.manifests_back(), None)
        return (first.committed_at, last.committed_at) if first and last else None

    def committed_at(self, position: int) -> int | None:
        found = next(self.manifests(position), None)
        return found.committed_at if found else None

    def snapshot_before(self, position: int) -> Snapshot | None:
        at = max((start for start in self.starts() if start <= position), default=None)
        if at is None:
            return None
        place, part = next(_from(self._facts, at))
        kept = snapshots_of(self._archive.read_table(place, part, SNAPSHOTS))
        return next((snapshot for snapshot in kept if snapshot.position == at), None)

    def _load_manifests(self, place: Path, part: Part) -> list[Manifest]:
        found = manifests_of(self._archive.read_table(place, part, BATCHES))
        return [manifest for manifest in found if manifest.p_to < self._cut.p_to]


def _from(parts: Parts, number: int) -> Iterator[tuple[Path, Part]]:
    """The part that holds the number, and the parts after it."""
    return itertools.islice(parts, bisect_left(parts, number, key=lambda each: each[1].last), None)
