"""Folds the log again into a new generation of the rows, beside the one in use.

Most of the rebuild runs while the projector works. For the last positions the rebuild takes the
lease, so that the position stands still; then it sets the new generation in the checkpoint and
releases the lease.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import NamedTuple, Protocol

from sqlalchemy import Engine

from joulie_bus.errors import PassedOver, StateDamaged
from joulie_bus.log.protocol import Log, Reader
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.fold.commit import Checkpoint, Input, Inputs, Poison, Snapshot
from joulie_projections.fold.comparison import DigestComparison
from joulie_projections.fold.joins import Joins
from joulie_projections.fold.manifest import CODE_VERSION, Manifest, hash_of_all
from joulie_projections.fold.quarantine_quota import all_positions, within_quota
from joulie_projections.fold.sequence import FoldCursor, step
from joulie_projections.fold.snapshots import unpack
from joulie_projections.history.history import History
from joulie_projections.state.rows import (
    Row,
    cluster_state_of,
    empty_digests,
    encode,
    state_digest,
    tables_of,
)
from joulie_projections.state.state import ClusterState
from joulie_projections.store.retrying import DatabaseExecutor
from joulie_projections.store.store import GenerationInfo, Store

MANIFESTS_PER_READ = 10_000
FETCH_TIMEOUT_S = 10.0  # for the next messages from the broker
LEASE_S = 30.0  # for the last positions; the projector waits this long if a rebuild dies


class RebuildResult(NamedTuple):
    generation: int
    position: int
    events: int
    seconds: float
    differs_at: int  # the first position where the same code committed another state; 0 for none
    set_aside: int = 0  # messages that were folded before and are in quarantine now
    uncompared: Mapping[str, int] = {}  # positions whose state was not compared, by fold version
    folded_from: int = 0  # the snapshot at which the fold began; 0: at the first fact


class FactSource(Protocol):
    """Provides the facts of a batch."""

    async def of(self, manifest: Manifest) -> list[Record]: ...


OpenHistory = Callable[[], AbstractContextManager[History]]


class HistorySource(NamedTuple):
    """The manifests and the facts of a log, of which an archive may hold the beginning."""

    reading: OpenHistory
    facts: FactSource


class StreamCursor:
    """Reads the streams forward once, in the order of the manifests."""

    def __init__(self, readers: dict[Stream, Reader], wakeup: asyncio.Event) -> None:
        self._readers = readers
        self._wakeup = wakeup

    @classmethod
    @contextlib.asynccontextmanager
    async def on(
        cls, bus: Log, start: Inputs, known: Inputs
    ) -> AsyncGenerator["StreamCursor", None]:
        """Opens the streams at `start`; `known` holds the creation time of each stream."""
        wakeup = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            readers = {}
            for stream in MERGE_ORDER:
                at = start.get(stream, Input("", 0))
                created = known.get(stream, Input("", 0)).created
                reading = bus.reading(stream, at.sequence, created, wakeup, at.digest)
                readers[stream] = await stack.enter_async_context(reading)
            yield cls(readers, wakeup)

    async def of(self, manifest: Manifest) -> list[Record]:
        records: list[Record] = []
        for wanted in manifest.ranges:
            reader, count = self._readers[wanted.stream], len(records)
            goal = count + wanted.last - wanted.first + 1
            while len(records) < goal:
                self._wakeup.clear()
                records.extend(reader.take(goal - len(records)))
                if len(records) < goal and not len(reader):
                    async with asyncio.timeout(FETCH_TIMEOUT_S):
                        await self._wakeup.wait()
        return records


class _Refold:
    """Folds the facts again, batch by batch."""

    def __init__(self, start: Snapshot | None) -> None:
        self.cursor, rows = (
            unpack(start) if start else (FoldCursor(0, {}, empty_digests(), b""), [])
        )
        self.cluster_state: ClusterState = cluster_state_of(rows)
        self.began = self.cursor.position
        self.events = 0
        self.differs_at = 0
        self.comparison = DigestComparison()
        self._joins = Joins(self.cursor.inputs)
        self.poison: list[Poison] = []  # messages that older code folded and this code refuses
        self._changed: dict[tuple[str, str], Row] = {}

    async def follow(self, past: FactSource, reading: OpenHistory, calls: DatabaseExecutor) -> None:
        """Folds until there are no more manifests."""
        while True:
            after = self.cursor.position
            manifests, aside = await calls.until_done(_manifests, reading, after)
            if not manifests:
                return
            for manifest in manifests:
                if what := self._joins.flaw(manifest):
                    raise PassedOver(what, "Nothing was rebuilt.")
                self._advance(await past.of(manifest), manifest, aside)

    def _advance(
        self, records: Sequence[Record], manifest: Manifest, aside: frozenset[int]
    ) -> None:
        if hash_of_all([record.data for record in records]) != manifest.facts_hash:
            raise StateDamaged("What the streams hold", manifest.p_to)
        draft, folded, _, rows, digests = step(self.cluster_state, self.cursor, records, aside)
        draft.commit()
        self.poison += within_quota(folded.poison)
        self._changed.update({(row.table, row.key): row for row in rows})
        self.cursor = FoldCursor(manifest.p_to, {}, digests, manifest.head)
        self.events += len(records)
        is_right = self.comparison.accepts(manifest, state_digest(digests), len(records))
        if not (is_right or self.differs_at):
            self.differs_at = manifest.p_to

    def every_row(self) -> list[Row]:
        self._changed.clear()
        return [
            Row(table, key, encode(state))
            for table, held in tables_of(self.cluster_state).items()
            for key, state in held.items()
        ]

    def changed(self) -> list[Row]:
        """The rows that changed since the last call of this method or of `every_row`."""
        rows = list(self._changed.values())
        self._changed.clear()
        return rows


async def rebuild(
    bus: Log,
    writer: Engine,
    owner: str,
    start: Snapshot | None = None,
    source: HistorySource | None = None,
) -> RebuildResult:
    """Rebuilds the rows from the first fact, or from `start`.

    A trimmed log needs `source`. Readers notice the new incarnation, and reload the rows.
    """
    calls, refold = DatabaseExecutor(), _Refold(start)
    try:
        async with contextlib.AsyncExitStack() as stack:
            if source is None:
                held = await calls.until_done(Store(writer).checkpoint)
                assert held is not None, "there is nothing to rebuild"
                past = await stack.enter_async_context(
                    StreamCursor.on(bus, refold.cursor.inputs, held.inputs)
                )
                source = HistorySource(lambda: History.on(writer), past)
            return await _rebuild(writer, calls, owner, refold, source)
    finally:
        calls.close()


async def _rebuild(
    writer: Engine, calls: DatabaseExecutor, owner: str, refold: "_Refold", past: HistorySource
) -> RebuildResult:
    began, store, call = time.perf_counter(), Store(writer), calls.until_done
    generation = await call(store.begin_generation)
    await refold.follow(past.facts, past.reading, calls)
    await call(store.fill, generation, refold.every_row(), refold.cursor.position)
    leading = await call(_take_over, store, owner)
    await refold.follow(past.facts, past.reading, calls)
    await call(store.fill, generation, refold.changed(), leading.position)
    reached = leading._replace(
        digests=refold.cursor.digests, incarnation=secrets.token_hex(8), generation=generation
    )
    made = GenerationInfo(CODE_VERSION, time.time_ns(), refold.poison)
    await call(store.activate_generation, leading.epoch, generation, reached, made)
    await call(store.drop_old_generations)
    seconds = time.perf_counter() - began
    aside = len(all_positions(refold.poison))
    compared = refold.differs_at, aside, refold.comparison.uncompared, refold.began
    return RebuildResult(generation, reached.position, refold.events, seconds, *compared)


def _manifests(reading: OpenHistory, after: int) -> tuple[list[Manifest], frozenset[int]]:
    with reading() as history:
        aside = history.set_aside()
        return list(islice(history.manifests(after + 1), MANIFESTS_PER_READ)), aside


def _take_over(store: Store, owner: str) -> Checkpoint:
    """Takes the lease from the projector: its next commit is fenced, and it restarts on the new
    rows.
    """
    while (held := store.acquire(owner, LEASE_S, "", lambda _: True)) is None:
        pass  # PostgreSQL: the projector renewed it between two statements
    return held
