"""The facts and the entries that no part of an archive has yet, as parts of at most one hour.

What the archiver writes, and what a query adds to the parts that are there.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator

from joulie_audit.archive.fact_source import FactSource
from joulie_audit.archive.part_tables import FactPart
from joulie_audit.columns.facts import rows_of_reading
from joulie_bus.errors import AgedOut, PassedOver
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import Poison, Snapshot
from joulie_projections.fold.joins import Joins
from joulie_projections.fold.manifest import Manifest, Range
from joulie_projections.history.history import NEWEST, History, StoredEntry

HOUR_NS = 3_600_000_000_000
PART_ROWS = 100_000  # facts: a reader holds one part in memory, and reads it for one snapshot
PART_READ_ROWS = 500_000  # of cards and pods in readings: two minutes of 5,000 nodes with 50 pods
PART_ENTRIES = 20_000  # entries are larger
UNARCHIVED = "Nothing from there on was archived, so nothing is trimmed and the stream keeps them."
ANY_TIME = 2**62


async def fact_parts(
    history: History,
    facts: FactSource,
    first: int,
    joins: Joins | None = None,
    before: int = ANY_TIME,
) -> AsyncIterator[tuple[int, FactPart]]:
    """Each with its hour, from the position `first` on; only whole hours that end by `before`.

    With `joins`, raises PassedOver at the first batch that does not continue its streams.
    """
    aside = history.quarantined()
    begins: dict[Stream, int] = {}
    for hour, manifests in _facts_by_hour(history.manifests(first)):
        if (hour + 1) * HOUR_NS > before:
            return
        async for reading in _read_in_parts(manifests, joins, facts, begins):
            yield hour, reading.part(history, aside)


def entries_by_hour(
    history: History, first: int, last: int = NEWEST, before: int = ANY_TIME
) -> Iterator[tuple[int, list[StoredEntry]]]:
    """Whole hours that end by `before`."""
    for hour, entries in _log_by_hour(history.entries(first, last)):
        if (hour + 1) * HOUR_NS > before:
            return
        yield hour, entries


class _Reading:
    """The facts of one part. What has aged out of its stream is lost: the archive continues behind
    it, because an archive that stops is never followed by a trim, and then everything fills.
    """

    def __init__(self, facts: FactSource, begins: dict[Stream, int]) -> None:
        """`begins`: the first message that a stream still holds, as far as it is known."""
        self._facts = facts
        self._begins = begins
        self.manifests: list[Manifest] = []
        self.records: list[Record] = []
        self.lost: list[Range] = []
        self._rows = 0  # of cards and pods

    def part(self, history: History, aside: Iterable[Poison]) -> FactPart:
        span = self.manifests[0].p_from, self.manifests[-1].p_to
        inside = [poison for poison in aside if span[0] <= poison.position <= span[1]]
        snapshots, names = _snapshot_in(history, span), tuple(history.row_name_changes(*span))
        return FactPart(self.manifests, self.records, inside, snapshots, tuple(self.lost), names)

    @property
    def is_full(self) -> bool:
        return self._rows >= PART_READ_ROWS

    async def add(self, manifest: Manifest) -> None:
        before = len(self.records)
        await self._read(manifest)
        self.manifests.append(manifest)
        self._rows += sum(map(rows_of_reading, self.records[before:]))

    async def _read(self, manifest: Manifest) -> None:
        if not any(map(self._is_lost, manifest.ranges)):
            with contextlib.suppress(AgedOut):
                self.records.extend(await self._facts.of(manifest))
                return
        for stream in {place.stream: None for place in manifest.ranges}:
            await self._add_of(manifest, stream)

    async def _add_of(self, manifest: Manifest, stream: Stream) -> None:
        """One stream of a manifest, as a whole: a batch is short."""
        places = [place for place in manifest.ranges if place.stream is stream]
        if not any(map(self._is_lost, places)):
            try:
                self.records.extend(await self._facts.of(manifest, frozenset((stream,))))
                return
            except AgedOut as error:
                self._begins[stream] = error.first
        self.lost.extend(places)

    def _is_lost(self, place: Range) -> bool:
        return place.first < self._begins.get(place.stream, 0)


async def _read_in_parts(
    manifests: Iterable[Manifest],
    joins: Joins | None,
    facts: FactSource,
    begins: dict[Stream, int],
) -> AsyncIterator[_Reading]:
    reading = _Reading(facts, begins)
    for manifest in manifests:
        if joins is not None and (what := joins.flaw(manifest)):
            raise PassedOver(what, UNARCHIVED)
        await reading.add(manifest)
        if reading.is_full:
            yield reading
            reading = _Reading(facts, begins)
    if reading.manifests:
        yield reading


def _snapshot_in(history: History, span: tuple[int, int]) -> tuple[Snapshot, ...]:
    """The newest snapshot of the span; the database keeps only recent ones."""
    found = history.snapshot_before(span[1])
    return (found,) if found is not None and found.position >= span[0] else ()


def _facts_by_hour(manifests: Iterable[Manifest]) -> Iterator[tuple[int, list[Manifest]]]:
    batch: list[Manifest] = []
    hour = rows = 0
    for manifest in manifests:
        this_hour = manifest.committed_at // HOUR_NS
        if batch and (this_hour != hour or rows >= PART_ROWS):
            yield hour, batch
            batch, rows = [], 0
        hour = this_hour
        batch.append(manifest)
        rows += manifest.p_to - manifest.p_from + 1
    if batch:
        yield hour, batch


def _log_by_hour(entries: Iterable[StoredEntry]) -> Iterator[tuple[int, list[StoredEntry]]]:
    """The hour never decreases, because the clocks of replicas differ a little."""
    batch: list[StoredEntry] = []
    hour = 0
    for entry in entries:
        this_hour = max(hour, entry.decided_at // HOUR_NS)
        if batch and (this_hour != hour or len(batch) >= PART_ENTRIES):
            yield hour, batch
            batch = []
        hour = this_hour
        batch.append(entry)
    if batch:
        yield hour, batch
