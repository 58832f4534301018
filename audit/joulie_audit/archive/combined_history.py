"""One history from two sources: an archive before the cut, the database from the cut on.

A reader of both sees what an untrimmed database would hold.
"""

import contextlib
import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import TypeVar

from joulie_audit.archive.archived_history import ArchivedHistory
from joulie_audit.archive.parts import Archive
from joulie_bus.errors import NotInTheLog
from joulie_projections.chain.head import Head
from joulie_projections.chain.merkle import NO_EDGE, Edge
from joulie_projections.fold.commit import Cut, Poison, Snapshot
from joulie_projections.fold.manifest import Manifest
from joulie_projections.history.history import NEWEST, EntryQuery, History, StoredEntry
from joulie_projections.store.database import Place

T = TypeVar("T")


class CombinedHistory(History):
    """`old` ends before the cut. Rows that an unfinished trim left there are ignored."""

    def __init__(self, new: History, old: ArchivedHistory, cut: Cut) -> None:
        super().__init__(new.connection, cut.pos)
        self._old = old
        self._cut = cut

    def cut(self) -> None:
        """None: readers see the whole log."""
        return

    # --- entries ------------------------------------------------------------------------------

    def entries(self, first: int = 1, last: int = NEWEST) -> Iterator[StoredEntry]:
        position = self._cut.pos
        before = self._old.entries(first, min(last, position - 1)) if first < position else ()
        return chain(before, super().entries(max(first, position), last))

    def find(self, query: EntryQuery, limit: int | None = None) -> Iterator[StoredEntry]:
        found = chain(super().find(query, limit), _lazily(lambda: self._old.find(query, limit)))
        return islice(found, limit)

    def pod_names(self, limit: int) -> list[str]:
        names = chain(super().pod_names(limit), _lazily(lambda: self._old.pod_names(limit)))
        return list(islice(dict.fromkeys(names), limit))

    def answers_by_view(self, first: int = 0, last: int = NEWEST) -> Iterator[StoredEntry]:
        both = self._old.answers_by_view(first, last), super().answers_by_view(first, last)
        return heapq.merge(*both, key=lambda entry: (entry.view_position, entry.pos))

    def count_answers(self, first: int = 0, last: int = NEWEST) -> int:
        return self._old.count_answers(first, last) + super().count_answers(first, last)

    def filters(self) -> Iterator[StoredEntry]:
        return chain(self._old.filters(), super().filters())

    def declarations(self, after: int = 0) -> Iterator[StoredEntry]:
        """Declarations before the cut stay in the database; the signed ones are in the archive."""
        kept = (each for each in super().declarations(after) if each.pos >= self._cut.pos)
        return chain(self._old.declarations(after), kept)

    def set_backs(self) -> Iterator[StoredEntry]:
        kept = (each for each in super().set_backs() if each.pos >= self._cut.pos)
        return chain(self._old.set_backs(), kept)

    def entry(self, pos: int) -> StoredEntry | None:
        return self._old.entry(pos) if pos < self._cut.pos else super().entry(pos)

    def entries_after(self, pos: int, limit: int) -> list[StoredEntry]:
        return list(islice(self.entries(pos + 1), limit))

    def entries_before(self, pos: int, query: EntryQuery) -> Iterator[StoredEntry]:
        earlier = _lazily(lambda: self._old.entries_before(pos, query))
        return chain(super().entries_before(pos, query), earlier)

    def newest_answers(self, count: int) -> Sequence[StoredEntry]:
        newest = super().newest_answers(count)
        return [*newest, *self._old.newest_answers(count - len(newest))]

    def count_heads(self) -> int:
        return super().count_heads() + self._old.count_heads()

    def heads(self) -> list[Head]:
        newer = [head for head in super().heads() if head.pos >= self._cut.pos]
        return [*self._old.heads(), *newer]

    def hashes(self, first: int, last: int) -> list[bytes]:
        """Few entries: those of one tile."""
        return [entry.hash for entry in self.entries(first, last)]

    def heads_before(self, pos: int) -> Iterator[Head]:
        newer = (head for head in super().heads_before(pos) if head.pos >= self._cut.pos)
        return chain(newer, _lazily(lambda: self._old.heads_before(pos)))

    def tree_edge(self, tiles: Sequence[bytes]) -> Edge:
        """None is needed: all entries are there."""
        return NO_EDGE

    # --- manifests ----------------------------------------------------------------------------

    def manifests(self, first: int = 1, last: int = NEWEST) -> Iterator[Manifest]:
        position = self._cut.p_to
        before = self._old.manifests(first, last) if first < position else ()
        return chain(
            before, super().manifests(max(first, position), last) if last >= position else ()
        )

    def manifests_back(self, last: int = NEWEST) -> Iterator[Manifest]:
        newer = takewhile(lambda each: each.p_to >= self._cut.p_to, super().manifests_back(last))
        inside = (each for each in newer if each.p_from <= last)
        return chain(inside, _lazily(lambda: self._old.manifests_back(last)))

    def manifest_by(self, time_ns: int) -> Manifest | None:
        found = super().manifest_by(time_ns)
        is_newer = found is not None and found.p_to >= self._cut.p_to
        return found if is_newer else self._old.manifest_by(time_ns)

    def position_by(self, time: int) -> int:
        found = super().position_by(time)
        return found if found >= self._cut.p_to else self._old.position_by(time)

    def commit_time_range(self) -> tuple[int, int] | None:
        old, new = self._old.commit_time_range(), super().commit_time_range()
        return (old[0], new[1]) if old and new else old or new

    def committed_at(self, position: int) -> int | None:
        found = next(self.manifests(position), None)
        return found.committed_at if found else None

    def fold_versions(self) -> list[str]:
        return sorted({*self._old.fold_versions(), *super().fold_versions()})

    def set_aside(self) -> frozenset[int]:
        return super().set_aside() | self._old.set_aside()

    def quarantined(self) -> list[Poison]:
        """A rebuild may quarantine in the database what the archive holds as folded."""
        both = [*self._old.quarantined(), *super().quarantined()]
        return [*{poison.position: poison for poison in sorted(both)}.values()]

    # --- snapshots ----------------------------------------------------------------------------

    def snapshot_before(self, position: int) -> Snapshot | None:
        found = super().snapshot_before(position)
        is_newer = found is not None and found.position >= self._cut.p_to
        return found if is_newer else self._old.snapshot_before(position) or found

    def starts(self) -> list[int]:
        return sorted({*self._old.starts(), *super().starts()})

    def snapshot_positions(self) -> list[int]:
        return [position for position in super().snapshot_positions() if position >= self._cut.p_to]


def _lazily(read: Callable[[], Iterable[T]]) -> Iterator[T]:
    """Delays reading the archive until the newer items are consumed."""
    yield from read()


@dataclass(frozen=True)
class Sources:
    """Where a history is stored. Picklable."""

    database: Place
    archive: Path | None = None

    @contextlib.contextmanager
    def reading(self) -> Generator[History, None, None]:
        with History.of(self.database) as history, combined(history, self.archive) as whole:
            yield whole


@contextlib.contextmanager
def combined(history: History, path: Path | None) -> Generator[History, None, None]:
    """The history with the archive before the cut, if there are both."""
    cut = history.cut()
    if cut is None or path is None:
        yield history
        return
    archive = Archive.of(path)
    require_covering(archive, cut)
    with ArchivedHistory.within(archive, cut) as old:
        yield CombinedHistory(history, old, cut)


def require_covering(archive: Archive, cut: Cut) -> None:
    """Raises if the archive ends before the cut: another archive lacks what was trimmed."""
    facts, log = archive.facts, archive.log
    reached = (facts[-1][1].last if facts else 0, log[-1][1].last if log else 0)
    if reached[0] < cut.p_to or reached[1] < cut.pos:
        raise NotInTheLog(
            f"{archive.path} ends at position {reached[0]} and entry {reached[1]}, before "
            f"what was trimmed: position {cut.p_to} and entry {cut.pos}. Nothing was read or "
            "written. The archive is another one, or incomplete; name the one that the trim used."
        )
