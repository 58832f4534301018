"""Checks an archive file by file, and that it belongs to this log."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from joulie_audit.archive.parts import FACTS, LOG, Archive, Part
from joulie_audit.archive.restore_plan import Hole, holes_of
from joulie_audit.chain.heads import unconfirmed
from joulie_audit.verify.archive_parts import (
    CheckedFacts,
    CheckedLog,
    checked_facts,
    checked_log,
    require_heads_fit,
    ring_with_keys,
)
from joulie_audit.verify.days import Day, Ends
from joulie_audit.verify.verify import manifest_flaw
from joulie_bus.errors import ArchiveBroken
from joulie_projections.chain.entry import FIRST_PREV
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.fold.joins import Joins
from joulie_projections.fold.manifest import CODE_VERSION
from joulie_projections.history.history import History

Progress = Callable[[int, int], None]  # parts done, parts in total


class ArchiveReport(NamedTuple):
    parts: int
    facts: int
    entries: int
    flaw: str | None
    lost: int = 0  # messages that had aged out before they were archived
    signed_to: int = 0  # the newest entry that a signed head of the archive or elsewhere covers
    other_folds: Mapping[str, int] = {}  # positions by fold version, if it is another
    holes: Sequence[Hole] = ()  # positions that a restore cannot bring back
    day: Day | None = None  # if one was verified alone


def verify_archive(
    archive: Archive,
    public: Ring,
    history: History | None = None,
    anchored: Sequence[Head] = (),
    jobs: int = 1,
    progress: Progress | None = None,
) -> ArchiveReport:
    """Checks everything up to the first flaw, in so many processes. With a database, the two must
    match.

    A trimmed database continues from this archive: the parts must hold the entry, the manifest and
    the seals that its cut names. `anchored` are heads from outside the database.
    """
    check = _ArchiveCheck(archive, public, history, anchored, jobs, progress)
    try:
        check.facts()
        check.log()
        check.reaches_the_cut()
    except ArchiveBroken as error:
        return check.report(str(error))
    return check.report(None)


class _ArchiveCheck:
    def __init__(
        self,
        archive: Archive,
        public: Ring,
        history: History | None,
        anchored: Sequence[Head],
        jobs: int,
        progress: Progress | None,
    ) -> None:
        self._archive = archive
        self._jobs = jobs
        self._cut = history.cut() if history else None
        self._anchored = anchored
        self._public = public
        self._history = history
        self._heads: list[Head] = []
        self._parts = self._facts = self._entries = self._lost = 0
        self._other_folds = Counter[str]()
        self._joins = Joins()
        self._found = Day(day=archive.day)
        self._progress = progress

    def report(self, flaw: str | None) -> ArchiveReport:
        found = (self._parts, self._facts, self._entries, flaw, self._lost)
        if not self._archive.day:
            holes = () if flaw else tuple(holes_of(self._archive))
            return ArchiveReport(*found, self._signed_to(), self._other_folds, holes)
        reads = {str(stream): last for stream, last in self._joins.read.items()}
        day = replace(self._found, reads=reads, signed_to=self._signed_to())
        return ArchiveReport(*found, self._signed_to(), self._other_folds, (), day)

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._parts, len(self._archive.facts) + len(self._archive.log))

    def _signed_to(self) -> int:
        covered = (head.pos for head in (*self._heads, *self._anchored))
        return max((pos for pos in covered if pos <= self._entries), default=0)

    def _require_signed(self) -> None:
        """Hashes without a signature prove nothing: a writer of the archive makes them again."""
        if self._entries and not self._signed_to() and not self._archive.day:
            what = f"no signed head covers any of its {self._entries} entries"
            raise ArchiveBroken(str(self._archive.path), what)

    def facts(self) -> None:
        self._archive.require_nothing_else(FACTS)
        prev: bytes | None = None if self._archive.day else b""
        found = checked_facts(self._archive, self._jobs, self._cut.p_to if self._cut else 0)
        for (place, part), checked in zip(self._archive.facts, found, strict=True):
            prev = self._facts_of(place, part, prev, checked)
            self._found = replace(self._found, facts=_ends(self._found.facts, part, prev))
            self._tell()
        if self._history is not None and self._facts and prev is not None:
            self._same_batch(prev)

    def _begin_day(self, part: Part, found: CheckedFacts) -> bytes:
        """The day before it is not there; the sum of all days compares."""
        assert found.first is not None
        self._found = replace(self._found, facts=_begun(part, found.first.prev))
        return found.first.prev

    def _begin_streams(self, found: CheckedFacts) -> None:
        begins = dict(self._found.begins)
        for _, each in found.ranges:
            if each.stream not in self._joins.read:
                begins[str(each.stream)] = each.first
                self._joins.read[each.stream] = each.first - 1
        self._found = replace(self._found, begins=begins)

    def _facts_of(self, place: Path, part: Part, prev: bytes | None, found: CheckedFacts) -> bytes:
        """Compares a part with those before it; the head of its last batch."""
        assert found.first is not None  # a flaw was raised
        prev = self._begin_day(part, found) if prev is None else prev
        if self._archive.day:
            self._begin_streams(found)
        if what := manifest_flaw(found.first, part.first, prev):
            raise ArchiveBroken(str(place), what)
        if self._cut and part.first <= self._cut.p_to <= part.last:
            is_same = found.cut_head == self._cut.manifest_head
            self._require_cut_at(place, part.seal == self._cut.facts_seal and is_same)
        self._facts, self._parts = part.last, self._parts + 1
        self._lost += found.lost
        for each in found.ranges:
            if what := self._joins.add(each):
                raise ArchiveBroken(str(place), what)
        for version, positions in found.folds.items():
            if version != CODE_VERSION:
                self._other_folds[version] += positions
        return found.head

    def _same_batch(self, head: bytes) -> None:
        assert self._history is not None
        known = next(self._history.manifests(self._facts, self._facts), None)
        if known is not None and known.head != head:
            raise ArchiveBroken(str(self._archive.path), "its facts belong to another log")

    def log(self) -> None:
        self._archive.require_nothing_else(LOG)
        prev = None if self._archive.day else FIRST_PREV
        found = checked_log(self._archive, self._jobs)
        for (place, part), checked in zip(self._archive.log, found, strict=True):
            if prev is None:
                prev = checked.hashes[part.first - 1]
                self._found = replace(self._found, log=_begun(part, prev))
            prev = self._log_of(place, part, prev, checked)
            self._found = replace(self._found, log=_ends(self._found.log, part, prev))
            self._tell()
        if (unconfirmed_head := self._public.unconfirmed(self._heads, self._entries)) is not None:
            raise ArchiveBroken(
                str(self._archive.path), unconfirmed(unconfirmed_head, self._public)
            )
        if self._history is None:
            self._require_signed()
        elif self._entries:
            entry = next(self._history.entries(self._entries, self._entries), None)
            if entry is not None and entry.hash != prev:
                raise ArchiveBroken(str(self._archive.path), "its entries belong to another log")

    def _log_of(self, place: Path, part: Part, prev: bytes, found: CheckedLog) -> bytes:
        """Compares a part with those before it; the hash of its last entry."""
        if found.hashes[part.first - 1] != prev:
            what = f"entry {part.first} does not link to the entry before it"
            raise ArchiveBroken(str(place), what)
        self._public = ring_with_keys(str(place), found.keys, self._public)
        require_heads_fit(str(place), found.heads, found.hashes, self._public)
        self._heads.extend(found.heads)
        prev = found.hashes[part.last]
        self._require_anchored(place, found.hashes)
        if self._cut and part.first <= self._cut.pos <= part.last:
            is_same = found.hashes[self._cut.pos] == self._cut.hash
            self._require_cut_at(place, part.seal == self._cut.log_seal and is_same)
        self._entries, self._parts = part.last, self._parts + 1
        return prev

    def reaches_the_cut(self) -> None:
        cut = self._cut
        if cut and (self._facts < cut.p_to or self._entries < cut.pos):
            what = f"it ends before entry {cut.pos} and position {cut.p_to}, the log's cut"
            raise ArchiveBroken(str(self._archive.path), what)

    def _require_cut_at(self, place: Path, is_same: bool) -> None:
        if not is_same:
            raise ArchiveBroken(str(place), "it is not the part that the cut names")

    def _require_anchored(self, place: Path, hashes: Mapping[int, bytes]) -> None:
        for head in self._anchored:
            if head.pos in hashes and hashes[head.pos] != head.hash:
                raise ArchiveBroken(str(place), f"entry {head.pos} does not match its signed head")


def _begun(part: Part, before: bytes) -> Ends:
    """Of a day whose first part this is."""
    return Ends(first=part.first, last=part.last, before=before.hex(), after="")


def _ends(known: Ends | None, part: Part, after: bytes) -> Ends | None:
    """Those of a day, with one part more."""
    return None if known is None else replace(known, last=part.last, after=after.hex())
