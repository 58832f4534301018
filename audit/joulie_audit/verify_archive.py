"""Checks an archive, file by file, and that it is the archive of this very log."""

from typing import NamedTuple

from joulie_audit.archive import LOG, Archive, FactPart, LogPart
from joulie_audit.verify import manifest_flaw
from joulie_bus.errors import ArchiveBroken
from joulie_projections.entry import FIRST_PREV, chain_hash
from joulie_projections.heads import Checker, is_genuine
from joulie_projections.history import History
from joulie_projections.manifest import merkle_root


class ArchiveReport(NamedTuple):
    parts: int
    facts: int
    entries: int
    flaw: str | None


def verify_archive(
    archive: Archive, public: Checker, history: History | None = None
) -> ArchiveReport:
    """Everything up to the first flaw. With a database the two must hold the same."""
    check = _Check(archive, public, history)
    try:
        check.facts()
        check.log()
    except ArchiveBroken as error:
        return check.report(str(error))
    return check.report(None)


class _Check:
    def __init__(self, archive: Archive, public: Checker, history: History | None) -> None:
        self._archive = archive
        self._public = public
        self._history = history
        self._parts = self._facts = self._entries = 0

    def report(self, flaw: str | None) -> ArchiveReport:
        return ArchiveReport(self._parts, self._facts, self._entries, flaw)

    def facts(self) -> None:
        prev = b""
        for place, part in self._archive.facts:
            found = self._archive.read_facts(place, part)
            prev = _facts_fit(str(place), found, self._facts, prev)
            self._facts, self._parts = part.last, self._parts + 1
        if self._history is not None and self._facts:
            self._same_batch(prev)

    def _same_batch(self, head: bytes) -> None:
        assert self._history is not None
        known = next(self._history.manifests(self._facts, self._facts), None)
        if known is not None and known.head != head:
            raise ArchiveBroken(str(self._archive.path), "its facts are those of another log")

    def log(self) -> None:
        prev = FIRST_PREV
        for place, part in self._archive.parts(LOG):
            found = self._archive.read_log(place, part)
            prev = self._log_fits(str(place), found, prev)
            self._entries, self._parts = part.last, self._parts + 1
        if self._history is not None and self._entries:
            entry = next(self._history.entries(self._entries, self._entries), None)
            if entry is not None and entry.hash != prev:
                raise ArchiveBroken(str(self._archive.path), "its entries are those of another log")

    def _log_fits(self, place: str, part: LogPart, prev: bytes) -> bytes:
        hashes: dict[int, bytes] = {}
        for entry in part.entries:
            if entry.prev != prev or chain_hash(prev, entry.body) != entry.hash:
                raise ArchiveBroken(place, f"entry {entry.pos} does not follow the one before it")
            prev = hashes[entry.pos] = entry.hash
        for head in part.heads:
            if not is_genuine(head, self._public) or hashes.get(head.pos) != head.hash:
                raise ArchiveBroken(place, f"the head at {head.pos} is not this log's")
        return prev


def _facts_fit(place: str, part: FactPart, position: int, prev: bytes) -> bytes:
    start = 0
    for manifest in part.manifests:
        if what := manifest_flaw(manifest, position + 1, prev):
            raise ArchiveBroken(place, what)
        count = manifest.p_to - manifest.p_from + 1
        bodies = [record.data for record in part.records[start : start + count]]
        if merkle_root(bodies) != manifest.merkle_root:
            raise ArchiveBroken(place, f"other facts at {manifest.p_from} to {manifest.p_to}")
        position, prev, start = manifest.p_to, manifest.head, start + count
    return prev
