"""Which positions of an archive a restore brings back, and which not, and why.

Facts that had aged out of their stream before they were archived leave a hole: the state in it is
not known any more. It is known again from the next snapshot on.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from joulie_audit.archive.part_tables import LOST, NO_OUTLINE, SNAPSHOTS, Outline
from joulie_audit.archive.parts import Archive, Part
from joulie_bus.errors import StateDamaged
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import Snapshot
from joulie_projections.fold.manifest import CODE_VERSION, Manifest
from joulie_projections.fold.sequence import FoldCursor
from joulie_projections.fold.snapshots import unpack
from joulie_projections.state.rows import Row, state_digest

SETTLED_NS = 60 * 10**9  # by then the outcome of a bound pod is an entry of the log


class Hole(NamedTuple):
    """Positions whose facts cannot be folded."""

    first: int
    last: int
    lost: str  # which messages
    is_closed: bool  # whether the state after it is that of a snapshot

    def __str__(self) -> str:
        after = (
            f"the state is known again from the snapshot at {self.last} on"
            if self.is_closed
            else "no snapshot behind them can be used"
        )
        return (
            f"positions {self.first} to {self.last}: {self.lost} had aged out of their stream "
            f"before they were archived; {after}"
        )


class Skip(NamedTuple):
    """Positions that are restored without folding their facts, up to a snapshot."""

    first: int
    last: int


class RestorePlan(NamedTuple):
    end: int  # the last position that comes back
    ended_at: int | None  # the time of its commit, if facts after it do not come back
    skips: list[Skip]
    holes: list[Hole]

    @property
    def folded_from(self) -> int:
        """The snapshot at which the fold begins; 0 for the first fact."""
        return self.skips[0].last if self.skips and self.skips[0].first == 1 else 0


def plan_of(archive: Archive, until: int, *, is_whole: bool = False) -> RestorePlan:
    """With `is_whole`, the fold begins at the first fact, and not at a snapshot."""
    end = _end_by(archive, until)
    ended_at = None if end == _last(archive) else until
    holes = list(holes_of(archive, end))
    if holes and not holes[-1].is_closed:
        end = holes[-1].first - 1
        ended_at = _committed_at(archive, end)
    start = 0 if is_whole else _newest_start(archive, end)
    skips = [Skip(1, start)] if start else []
    skips += [Skip(each.first, each.last) for each in holes if start < each.first <= end]
    return RestorePlan(end, ended_at, skips, holes)


def holes_of(archive: Archive, end: int | None = None) -> Iterator[Hole]:
    """The holes up to a position, in order; the last one may be open."""
    search = _HoleSearch()
    for place, part in archive.facts:
        if end is not None and part.first > end:
            break
        if search.is_in_a_hole or part.has(LOST):
            yield from search.within(archive.read_outline(place, part), end)
    yield from search.rest(_last(archive) if end is None else end)


class _HoleSearch:
    def __init__(self) -> None:
        self._first = 0
        self._lost = Counter[Stream]()

    @property
    def is_in_a_hole(self) -> bool:
        return self._first > 0

    def within(self, outline: Outline, end: int | None) -> Iterator[Hole]:
        lost = frozenset(outline.lost)
        for manifest in outline.manifests:
            if end is not None and manifest.p_from > end:
                return
            for each in lost.intersection(manifest.ranges):
                self._first = self._first or manifest.p_from
                self._lost[each.stream] += each.last - each.first + 1
            if self._first and is_start(outline, manifest):
                yield self._hole(manifest.p_to, is_closed=True)

    def rest(self, end: int) -> Iterator[Hole]:
        if self._first:
            yield self._hole(end, is_closed=False)

    def _hole(self, last: int, *, is_closed: bool) -> Hole:
        named = " and ".join(_messages(count, name) for name, count in self._lost.items())
        found = Hole(self._first, last, named, is_closed)
        self._first = 0
        self._lost.clear()
        return found


def _messages(count: int, stream: Stream) -> str:
    return f"{count} message{'' if count == 1 else 's'} of {stream}"


# --- snapshots --------------------------------------------------------------------------------


class Start(NamedTuple):
    """The state at a position, from a snapshot."""

    cursor: FoldCursor
    rows: list[Row]


def start_at(snapshot: Snapshot, manifest: Manifest) -> Start | None:
    """None if this code cannot begin there: it is of another version, or not that of the log."""
    if snapshot.fold_version != CODE_VERSION:
        return None
    try:
        cursor, rows = unpack(snapshot)
    except StateDamaged:
        return None
    made = cursor.position, cursor.head, state_digest(cursor.digests)
    is_of_log = made == (manifest.p_to, manifest.head, manifest.state_digest)
    return Start(cursor, rows) if is_of_log else None


def is_start(outline: Outline, manifest: Manifest) -> bool:
    here = (each for each in outline.snapshots if each.position == manifest.p_to)
    return any(start_at(each, manifest) is not None for each in here)


def _newest_start(archive: Archive, end: int) -> int:
    """The newest snapshot at which a fold can begin, or the one before if that is very new; 0 if
    there is none.

    The outcomes of pods that were bound just before a snapshot are not entries yet.
    """
    newest = 0
    settled_at = _committed_at(archive, end) - SETTLED_NS
    for place, part in _back(archive, end):
        outline = archive.read_outline(place, part) if part.has(SNAPSHOTS) else NO_OUTLINE
        for manifest in reversed(outline.manifests):
            if manifest.p_to <= end and is_start(outline, manifest):
                newest = newest or manifest.p_to
                if manifest.committed_at <= settled_at:
                    return manifest.p_to
    return newest


# --- where an archive ends --------------------------------------------------------------------


def _last(archive: Archive) -> int:
    return archive.facts[-1][1].last if archive.facts else 0


def _back(archive: Archive, end: int) -> Iterator[tuple[Path, Part]]:
    """The parts that hold positions up to there, newest first."""
    return (each for each in reversed(archive.facts) if each[1].first <= end)


def _end_by(archive: Archive, until: int) -> int:
    """The last position that was committed by then; 0 if there is none."""
    for place, part in reversed(archive.facts):
        for manifest in reversed(archive.read_manifests(place, part)):
            if manifest.committed_at <= until:
                return manifest.p_to
    return 0


def _committed_at(archive: Archive, position: int) -> int:
    for place, part in _back(archive, position):
        for manifest in reversed(archive.read_manifests(place, part)):
            if manifest.p_to <= position:
                return manifest.committed_at
    return 0
