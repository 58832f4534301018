"""The facts of an archive, part by part: whole batches as records or in columns, or those streams
alone that are small."""

from bisect import bisect_left
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from joulie_audit.archive.fact_source import FactSource
from joulie_audit.archive.part_tables import BATCHES, LOST, Batch, manifests_of
from joulie_audit.archive.parts import OTHER_LOG, Archive, Part
from joulie_audit.recompute.column_part import ColumnBatch, ColumnPart
from joulie_bus.errors import ArchiveBroken, NeverArchived
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.energy.columns import LogColumns
from joulie_projections.fold.manifest import Manifest, Range
from joulie_projections.history.history import History

_EVERY = frozenset(MERGE_ORDER)


class _CachedPart(NamedTuple):
    """The part that was read last."""

    part: Part
    batches: dict[int, Batch]  # by their first position
    has_telemetry: bool

    def batch_with(self, position: int) -> Batch | None:
        """Mostly it is the first one of the batch, which plans begin."""
        if position in self.batches:
            return self.batches[position]
        within = (each for each in self.batches.values() if _is_of(each.manifest, position))
        return next(within, None)


class _CachedColumns(NamedTuple):
    """The part that was read last in columns."""

    part: Part
    columns: ColumnPart | None
    batches: dict[int, Manifest]  # by their first position


class ArchivedFacts:
    """Facts from the archive as far as it reaches, then from `rest`."""

    def __init__(self, archive: Archive, rest: FactSource) -> None:
        self._archive = archive
        self._rest = rest
        self._cached: _CachedPart | None = None
        self._columns: _CachedColumns | None = None
        self._is_of_log = False

    async def of(self, manifest: Manifest, streams: frozenset[Stream] = _EVERY) -> list[Record]:
        cached = self._cached_part(manifest.p_from, with_telemetry=Stream.TEL in streams)
        if cached is None:
            return await self._rest.of(manifest, streams)
        kept = cached.batch_with(manifest.p_from)
        if kept is None or not _holds(kept.manifest, manifest):
            raise ArchiveBroken(str(self._archive.path), OTHER_LOG)
        if any(place.stream in streams for place in kept.lost):
            raise NeverArchived(str(self._archive.path), manifest.p_from, manifest.p_to)
        chosen = [record for record in kept.records if record.stream in streams]
        if kept.manifest.ranges == manifest.ranges:
            return chosen
        return [each for each in chosen if any(_is_in(each, place) for place in manifest.ranges)]

    def in_columns(self, manifest: Manifest) -> ColumnBatch | None:
        """A whole batch; None for one that only `of` has, or refuses."""
        cached = self._cached_columns(manifest.p_from)
        if cached is None or cached.columns is None:
            return None
        kept = cached.batches.get(manifest.p_from)
        if kept is None or kept.ranges != manifest.ranges:
            return None
        begin = manifest.p_from - cached.part.first
        return ColumnBatch(cached.columns, begin, begin + manifest.p_to - manifest.p_from + 1)

    def _cached_columns(self, position: int) -> _CachedColumns | None:
        if self._columns is not None and _contains(self._columns.part, position):
            return self._columns
        found = self._part_with(position)
        if found is None:
            return None
        self._columns = None  # before the next part is read, for the sake of memory
        if found[1].has(LOST):
            self._columns = _CachedColumns(found[1], None, {})
        else:
            columns, manifests = self._archive.read_column_part(*found)
            batches = {manifest.p_from: manifest for manifest in manifests}
            self._columns = _CachedColumns(found[1], columns, batches)
        return self._columns

    async def first_of(self, _: Stream, /) -> int:
        """An archive has all facts from the first one on."""
        return 1

    def begins_at(self, position: int) -> bool:
        return position in self._by_first

    def columns_at(self, position: int, history: History) -> LogColumns | None:
        found = self._by_first.get(position)
        if found is None:
            return None
        self.require_log(history)
        return self._archive.read_columns(*found)

    @cached_property
    def _by_first(self) -> dict[int, tuple[Path, Part]]:
        return {part.first: (place, part) for place, part in self._archive.facts}

    def require_log(self, history: History) -> None:
        """Raises ArchiveBroken for an archive of another log. If its newest batch is of the log,
        all are: each names the hash of the one before it."""
        if self._is_of_log:
            return
        place, part = self._archive.facts[-1]
        known = next(history.manifests(part.last, part.last), None)
        newest = manifests_of(self._archive.read_table(place, part, BATCHES))[-1]
        if known is None or known.head != newest.head:
            raise ArchiveBroken(str(self._archive.path), OTHER_LOG)
        self._is_of_log = True

    def _cached_part(self, position: int, *, with_telemetry: bool) -> _CachedPart | None:
        """Without telemetry, which is most of a part, it is read in a fraction of the time."""
        cached = self._cached
        is_here = cached is not None and _contains(cached.part, position)
        if cached is not None and is_here and (cached.has_telemetry or not with_telemetry):
            return cached
        found = self._part_with(position)
        if found is None:
            return None
        if with_telemetry:
            batches = self._archive.read_facts(*found).batches()
        else:
            batches = iter(self._archive.read_other_batches(*found))
        by_first = {batch.manifest.p_from: batch for batch in batches}
        self._cached = _CachedPart(found[1], by_first, with_telemetry)
        return self._cached

    def _part_with(self, position: int) -> tuple[Path, Part] | None:
        facts = self._archive.facts
        at = bisect_left(facts, position, key=lambda each: each[1].last)
        return facts[at] if at < len(facts) and _contains(facts[at][1], position) else None


def _holds(whole: Manifest, part: Manifest) -> bool:
    """Whether a manifest, reduced to some of its ranges perhaps, is this one's."""
    return bool(part.ranges) and all(
        any(
            each.stream is kept.stream and kept.first <= each.first and each.last <= kept.last
            for kept in whole.ranges
        )
        for each in part.ranges
    )


def _is_in(record: Record, place: Range) -> bool:
    return record.stream is place.stream and place.first <= record.sequence <= place.last


def _is_of(manifest: Manifest, position: int) -> bool:
    return manifest.p_from <= position <= manifest.p_to


def _contains(part: Part, position: int) -> bool:
    return part.first <= position <= part.last
