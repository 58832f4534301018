"""Builds the index of an archive: next to its parts, or temporary if that is not writable."""

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

from joulie_audit.archive.part_tables import (
    ASIDE,
    BATCHES,
    ENTRIES,
    HEADS,
    SNAPSHOTS,
    heads_of,
    manifests_of,
    poison_of,
    snapshots_of,
)
from joulie_audit.archive.parts import FACTS, LOG, Archive, Part
from joulie_projections.history.archive_index import FIELD_COLUMNS, ArchiveIndex, IndexedPart

FILE = ".index.db"


@contextlib.contextmanager
def indexed(archive: Archive) -> Generator[Path, None, None]:
    """The index file with every part, valid inside the block."""
    if os.access(archive.path, os.W_OK):
        _fill(archive.path / FILE, archive)
        yield archive.path / FILE
        return
    with tempfile.TemporaryDirectory(prefix="joulie-index-") as folder:
        _fill(Path(folder) / FILE, archive)
        yield Path(folder) / FILE


def _fill(file: Path, archive: Archive) -> None:
    parts = {FACTS: archive.facts, LOG: archive.log}
    seals = {part.seal for found in parts.values() for _, part in found}
    with ArchiveIndex.filling(file) as index:
        known = index.seals()
        if not known <= seals:  # it is the index of another archive
            index.clear()
            known = set()
        for place, part in parts[FACTS]:
            if part.seal not in known:
                _add_facts(index, archive, place, part)
        for place, part in parts[LOG]:
            if part.seal not in known:
                _add_log(index, archive, place, part)


def _add_facts(index: ArchiveIndex, archive: Archive, place: Path, part: Part) -> None:
    manifests = manifests_of(archive.read_table(place, part, BATCHES))
    versions = " ".join(sorted({manifest.fold_version for manifest in manifests}))
    aside = poison_of(archive.read_table(place, part, ASIDE))
    kept = snapshots_of(archive.read_table(place, part, SNAPSHOTS))
    at = [(snapshot.position, snapshot.fold_version) for snapshot in kept]
    began_at = min(manifest.committed_at for manifest in manifests)
    index.add_facts(IndexedPart(part.seal, FACTS, began_at, versions), aside, at)


def _add_log(index: ArchiveIndex, archive: Archive, place: Path, part: Part) -> None:
    entries = archive.read_table(place, part, ENTRIES)
    rows = list(zip(*(entries[name] for name in FIELD_COLUMNS), strict=True))
    heads = heads_of(archive.read_table(place, part, HEADS))
    index.add_log(IndexedPart(part.seal, LOG, 0, ""), rows, heads)
