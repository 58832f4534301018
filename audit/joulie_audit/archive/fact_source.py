"""Sources of the facts of a batch: the streams while they hold them, or an archive."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import NamedTuple, Protocol

from joulie_bus.errors import AgedOut, NotInTheLog, StreamGap, StreamReplaced, Undecodable
from joulie_bus.events import PlanEvent, codec
from joulie_bus.log.protocol import Log, Reader
from joulie_bus.streams.authority import require_authority
from joulie_bus.streams.records import Record, digest_of
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.energy.columns import LogColumns
from joulie_projections.fold.commit import Input, Inputs
from joulie_projections.fold.manifest import Manifest, Range
from joulie_projections.history.history import NEWEST, History

PATIENCE_S = 10.0  # for the broker to deliver the next messages
_EVERY = frozenset(MERGE_ORDER)


def streams_of(history: History) -> Inputs:
    """The identity of each stream that the database was filled from, and the last sequence."""
    checkpoint = history.checkpoint()
    return checkpoint.inputs if checkpoint else {}


class FactSource(Protocol):
    async def of(self, manifest: Manifest, streams: frozenset[Stream] = _EVERY) -> list[Record]:
        """The records of a batch from these streams, by position. Fastest in log order."""
        ...


class RetainedFacts(FactSource, Protocol):
    async def first_of(self, stream: Stream, /) -> int:
        """The first sequence that can still be read."""
        ...


class ColumnSource(FactSource, Protocol):
    """For the ledger."""

    def begins_at(self, position: int) -> bool:
        """Whether a part of an archive begins at this position."""
        ...

    def columns_at(self, position: int, history: History) -> LogColumns | None:
        """That part in columns; None if there is none, or none with columns."""
        ...


class _OpenReader(NamedTuple):
    reader: Reader
    read_to: int  # the last sequence that was taken
    closing: contextlib.AsyncExitStack


class StreamFacts:
    """Reads the streams forward; a jump replaces the reader."""

    def __init__(
        self, bus: Log, known: Mapping[Stream, Input], stack: contextlib.AsyncExitStack
    ) -> None:
        self._bus = bus
        self._known = known
        self._compared: set[Stream] = set()
        self._stack = stack
        self._wakeup = asyncio.Event()
        self._open: dict[Stream, _OpenReader] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, bus: Log, history: History) -> AsyncGenerator["StreamFacts", None]:
        async with cls.over(bus, streams_of(history)) as facts:
            yield facts

    @classmethod
    @contextlib.asynccontextmanager
    async def over(
        cls, bus: Log, known: Mapping[Stream, Input]
    ) -> AsyncGenerator["StreamFacts", None]:
        """Reads only the streams that the database was filled from, not later ones of that name."""
        async with contextlib.AsyncExitStack() as stack:
            yield cls(bus, known, stack)

    async def of(self, manifest: Manifest, streams: frozenset[Stream] = _EVERY) -> list[Record]:
        records: list[Record] = []
        for wanted in manifest.ranges:
            if wanted.stream in streams:
                records.extend(await self._read(wanted))
        return records

    async def first_of(self, stream: Stream) -> int:
        """The first sequence that has not aged out."""
        return (await self._bus.state(stream)).first

    def begins_at(self, position: int) -> bool:
        return False

    def columns_at(self, position: int, history: History) -> LogColumns | None:
        return None

    async def _read(self, wanted: Range) -> list[Record]:
        opened = await self._reader_at(wanted)
        reader = opened.reader
        count = wanted.last - wanted.first + 1
        taken: list[Record] = []
        while len(taken) < count:
            self._wakeup.clear()
            taken.extend(reader.take(count - len(taken)))
            if len(taken) < count and not len(reader):
                await self._await_more(wanted)
        self._open[wanted.stream] = opened._replace(read_to=wanted.last)
        return taken

    async def _await_more(self, wanted: Range) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._wakeup.wait()
        except TimeoutError as error:
            raise NotInTheLog(
                f"{wanted.stream} does not deliver {wanted.first} to {wanted.last}: no message "
                f"arrived for {PATIENCE_S:g} s. Reading stopped; the broker's log may say why."
            ) from error

    async def _reader_at(self, wanted: Range) -> _OpenReader:
        known = self._open.pop(wanted.stream, None)
        if known is not None and known.read_to == wanted.first - 1:
            return known
        if known is not None:
            await known.closing.aclose()
        created = await self._identity(wanted.stream)
        reading = self._bus.reading(wanted.stream, wanted.first - 1, created, self._wakeup)
        closing = await self._stack.enter_async_context(contextlib.AsyncExitStack())
        try:
            reader = await closing.enter_async_context(reading)
            return _OpenReader(reader, wanted.first - 1, closing)
        except StreamGap as error:
            raise AgedOut(str(wanted.stream), wanted.first, error.first) from error

    async def _identity(self, stream: Stream) -> str:
        """The identity of the stream. Raises StreamReplaced if it was replaced: the newest
        message that the database read must still be there, unchanged.
        """
        known = self._known.get(stream, Input("", 0))
        if known.digest and stream not in self._compared:
            place = Range(stream, known.sequence, known.sequence)
            with contextlib.suppress(StreamGap):  # it has aged out: nothing to compare
                await self._compare(place, known)
        self._compared.add(stream)
        return known.created

    async def _compare(self, place: Range, known: Input) -> None:
        wakeup = self._wakeup
        reading = self._bus.reading(place.stream, place.first - 1, known.created, wakeup)
        async with reading as reader:
            while not (found := reader.take(1)):
                wakeup.clear()
                await self._await_more(place)
        if digest_of(found[0]) != known.digest:
            raise StreamReplaced.at(place.stream, place.first)


class PlanFact(NamedTuple):
    position: int
    at: int
    event: PlanEvent


async def plan_facts(
    history: History, facts: FactSource, first: int = 1, last: int = NEWEST
) -> AsyncIterator[PlanFact]:
    """Every event of every plan. Reads only the stream of plans, which is small."""
    for manifest in history.manifests(first, last):
        if not (places := _places_of(manifest, Stream.PLAN)):
            continue
        records = await facts.of(manifest, frozenset((Stream.PLAN,)))
        for at, record in zip(places, records, strict=True):
            if first <= at <= last and (event := _plan_event(record)) is not None:
                yield PlanFact(at, record.at, event)


def _places_of(manifest: Manifest, stream: Stream) -> list[int]:
    """The positions of the records that the batch read from this stream."""
    places: list[int] = []
    position = manifest.p_from
    for part in manifest.ranges:
        end = position + part.last - part.first + 1
        if part.stream is stream:
            places.extend(range(position, end))
        position = end
    return places


def _plan_event(record: Record) -> PlanEvent | None:
    try:
        envelope = codec.open_envelope(record.data, "plan")
        event = codec.read(envelope, "plan")
        require_authority(record, envelope, event, "plan")
    except Undecodable:
        return None  # it is in quarantine and changed nothing
    return event if isinstance(event, PlanEvent) else None
