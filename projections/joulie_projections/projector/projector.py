"""The sequencer: merges the streams into one gapless order, folds, commits and publishes.

All I/O happens here; the computation is in `sequence`. A crash at any point loses nothing: position
and rows are committed together, and reading continues from the position.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from joulie_bus.errors import DatabasePromoted, Fenced, StreamGap, Unwritable
from joulie_bus.events import StateSetBack
from joulie_bus.log.protocol import Log, Reader
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.settings import integer, setting
from joulie_bus.runtime.tasks import background, wait_and_clear
from joulie_bus.runtime.vital_tasks import VitalTask, Work, vital
from joulie_bus.streams.authority import is_refusal
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream, Subjects
from joulie_projections.decision_log.earlier_state import was_decided_on
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.writer import DecisionWriter, Facts, Leadership
from joulie_projections.fold import snapshots
from joulie_projections.fold.commit import Checkpoint, Input
from joulie_projections.fold.quarantine_quota import all_positions, positions_of
from joulie_projections.fold.sequence import (
    FoldCursor,
    SequencedBatch,
    quarantined_batch,
    revert,
    sequence,
)
from joulie_projections.projector.copies import CopyWatch
from joulie_projections.projector.lag import Lag, StreamEnds, newest_times
from joulie_projections.projector.liveness import Liveness
from joulie_projections.projector.pacing import CommitPace
from joulie_projections.state.completeness import known_s
from joulie_projections.state.deltas import (
    Heartbeat,
    Sent,
    delta_of,
    encode,
    encode_delta,
    pack_digests,
)
from joulie_projections.state.rows import cluster_state_of
from joulie_projections.state.state import ClusterState
from joulie_projections.store.bisection import write_bisecting
from joulie_projections.store.lease_owner import is_gone, new_owner
from joulie_projections.store.monotonic import monotonic_clock
from joulie_projections.store.retrying import TRANSIENT, DatabaseExecutor
from joulie_projections.store.store import Store

BATCH = 5000  # events of one transaction: more gain nothing, and a commit takes longer
LEASE_S = 3.0  # what a standby waits for a projector that stopped; several missed renewals
STALL_S = 60.0  # with events waiting and no position gained for so long, /healthz says no
SNAPSHOTS = 400  # of 25,000 events each: what can be looked back at quickly, in bounded room
OUTCOME_GRACE_S = 30.0  # for the answer about a bound pod to arrive by way of the stream
BEAT_S = 0.25
SMALL = 256  # events: for a smaller commit the thread switch takes longer than the commit
LINGER_S = 0.005  # how long to wait for further messages from the broker
LOGGED_PER_COMMIT = 20  # quarantined messages of one commit that are logged individually
LOST_EVERY_S = 10.0
FRESH_S = 2.0  # a majority of the broker's servers reports each second
RELEASE_S = 2.0
log = get_logger("projector")
_FOLDED, _DUPLICATE, _QUARANTINED = (
    metrics.EVENTS.labels(fate=fate) for fate in ("folded", "duplicate", "quarantined")
)


@dataclass(frozen=True, kw_only=True)
class ProjectorSettings:
    batch: int = BATCH
    lease_s: float = LEASE_S
    stall_s: float = STALL_S
    snapshot_every: int = setting(
        integer(0),
        "PROJECTOR_SNAPSHOT_EVERY",
        "25000",
        "Events between two snapshots of everything; 0 for none",
    )
    snapshots: int = SNAPSHOTS
    outcome_grace_s: float = OUTCOME_GRACE_S


class _RefusedCommit(NamedTuple):
    """A batch with values that the database refuses."""

    batch: SequencedBatch
    records: Sequence[Record]
    why: str


class Projector:
    """Projects the streams into one database; a second projector is a standby."""

    def __init__(
        self,
        bus: Log,
        subjects: Subjects,
        engine: Engine,
        signer: Signer,
        settings: ProjectorSettings,
    ) -> None:
        self.liveness = Liveness(settings.stall_s)
        for stream in (*MERGE_ORDER, Stream.DEC):  # counted from 0, for alerts on an increase
            metrics.REFUSED.labels(stream=stream)
        self._bus = bus
        self._subjects = subjects
        self._settings = settings
        self._owner = new_owner()
        self._store = Store(engine)
        self._calls = DatabaseExecutor()
        self._decision_writer = DecisionWriter(
            bus, subjects, engine, self._calls, signer, self._committed_facts
        )
        self._leadership = Leadership(0, "")
        self._ends = StreamEnds(bus)
        self._lag = Lag(bus, self._ends)
        self._copies = CopyWatch(bus)
        self._in_flight = 0
        self._storage_to_commit_s = 0.0
        self._cluster_state = ClusterState()
        self._cursor = FoldCursor(0, {}, {}, b"")  # committed
        self._folded = self._cursor
        self._clock = monotonic_clock()
        self._snapshot_position = 0  # position of the newest snapshot, made or in the making
        self._readers: dict[Stream, Reader] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._created: dict[Stream, str] = {}
        self._refused: _RefusedCommit | None = None
        self._pace = CommitPace()

    @property
    def position(self) -> int:
        """The committed position."""
        return self._cursor.position

    def _committed_facts(self) -> Facts:
        return Facts(self._cursor.position, self._cursor.head, self._cursor.inputs)

    async def run(self, *beside: tuple[VitalTask, Work]) -> None:
        """Runs until cancelled; raises if it is fenced or a stream was replaced or trimmed.

        The tasks `beside` run while it leads.
        """
        try:
            await self._decision_writer.require_key()
            held = await self._acquire()
            async with self._renewed(held):
                await self._boot(held)
            with (
                metrics.LAG_SECONDS.computed_by(lambda: known_s(self._lag.behind_ms)),
                metrics.BROKER_SILENT_SECONDS.computed_by(lambda: known_s(self._lag.broker_ms)),
            ):
                async with asyncio.TaskGroup() as tasks:
                    for task, work in (*self._vital_tasks(tasks), *beside):
                        tasks.create_task(vital(task, work), name=str(task))
        except* Fenced:
            metrics.FENCED.inc()
            raise
        except* StreamGap:
            metrics.GAPS.inc()
            raise
        finally:
            await self._end()

    def _vital_tasks(self, tasks: asyncio.TaskGroup) -> Iterator[tuple[VitalTask, Work]]:
        writer, leads, settings = self._decision_writer, self._leadership, self._settings
        yield VitalTask.PROJECT, lambda: self._project(tasks)
        yield VitalTask.DECISIONS, lambda: writer.write(leads, settings.batch)
        yield VitalTask.HEADS, lambda: writer.sign(leads)
        yield VitalTask.OUTCOMES, lambda: writer.publish_outcomes(leads, settings.outcome_grace_s)
        yield VitalTask.LEASE, self._keep_lease
        yield VitalTask.LAG, self._lag.follow
        yield VitalTask.BEAT, self._beat
        yield VitalTask.MISSING, self._count_missing
        yield VitalTask.COPIES, self._copies.follow

    async def _end(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self._release()
        self._calls.close()

    # --- the lease ----------------------------------------------------------------------------

    async def _acquire(self) -> Checkpoint:
        """Takes the lease once it is free and the broker answers."""
        waited = False
        while True:
            await self._reach_broker()
            fresh = secrets.token_hex(8)
            held = await self._calls.until_done(
                self._store.acquire, self._owner, self._settings.lease_s, fresh, is_gone
            )
            if held is not None:
                log.info("leading", epoch=held.epoch, position=held.position)
                return held
            if not waited:
                log.info("standing_by", why="another projector holds the lease")
                waited = True
            self.liveness.mark_standby()
            await asyncio.sleep(self._settings.lease_s / 3)

    async def _reach_broker(self) -> None:
        """Waits for the broker: a projector that does not reach it must not take the lease from
        one that does, or lose it again at once."""
        self._ends.forget()
        while await self._ends.ask() is None or self._ends.silent_s > FRESH_S:
            self.liveness.wait_for_broker()
            await asyncio.sleep(self._settings.lease_s / 3)

    async def _keep_lease(self) -> None:
        """Renews the lease while the broker answers, so that a standby that reaches it takes over.

        Without a standby this projector continues to lead, and renews once the broker is back.
        """
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            if problem := self._ends.problem:
                log.warning("lease_not_renewed", error=problem)
                continue
            lease = (self._leadership.epoch, self._settings.lease_s, self._cursor.position)
            try:
                await self._calls.once(self._store.renew, *lease, lambda: self._lag.behind_s)
            except TRANSIENT as error:
                log.warning("lease_not_renewed", error=str(error.orig))

    @contextlib.asynccontextmanager
    async def _renewed(self, held: Checkpoint) -> AsyncGenerator[None, None]:
        """Keeps the lease while the rows of a large cluster are read. Without that a standby takes
        it over, reads for as long, and loses it in turn. Without the broker, which is asked while
        it begins, a standby that reaches it takes over."""
        lease_s, calls = self._settings.lease_s, DatabaseExecutor()

        async def ask() -> None:
            while True:
                await asyncio.sleep(lease_s / 3)
                await self._ends.ask()

        async def renew() -> None:
            while True:
                await asyncio.sleep(lease_s / 3)
                if self._ends.silent_s > FRESH_S:
                    continue
                with contextlib.suppress(Fenced, *TRANSIENT):  # found when it leads
                    await calls.once(self._store.renew, held.epoch, lease_s, held.position)

        try:
            async with background(ask(), "broker"), background(renew(), "lease"):
                yield
        finally:
            calls.close()

    async def _release(self) -> None:
        """Lets a standby take over at once. If this fails, the lease expires."""
        if not self._leadership.epoch:
            return
        with contextlib.suppress(Fenced, TimeoutError, *TRANSIENT):
            async with asyncio.timeout(RELEASE_S):
                await self._calls.once(self._store.release, self._leadership.epoch)

    async def _boot(self, held: Checkpoint) -> None:
        self.liveness.start_to_lead()
        loaded, rows = await self._calls.until_done(self._store.load)
        if loaded != held:  # also if its epoch is the same: a standby may have lacked this lease
            raise Fenced(held.epoch, held.position)  # these rows are those of the next projector
        recorded = FoldCursor(held.position, held.inputs, held.digests, held.head)
        await self._calls.once(snapshots.require_intact, "The rows", rows, recorded)
        self._cluster_state = await self._calls.once(cluster_state_of, rows)
        self._leadership = Leadership(held.epoch, held.incarnation)
        # Its key may have changed while this one stood by.
        await self._decision_writer.require_key()
        await self._begin_behind(held)
        self._snapshot_position = await self._calls.until_done(self._store.newest_snapshot)
        metrics.EPOCH.set(held.epoch)
        metrics.POSITION.set(self.position)
        was_promoted = await self._calls.until_done(self._store.was_promoted, held.epoch)
        is_older = not await self._decision_writer.open(held.epoch) or was_promoted
        await self._decision_writer.move_manifests(held.epoch, self.position)
        if await self._replaces_another():
            await self._reset_incarnation("")
        elif is_older:
            await self._reset_incarnation(held.incarnation)

    async def _begin_behind(self, held: Checkpoint) -> None:
        """Reads on where the manifests end, whatever `checkpoint` records."""
        found = await self._decision_writer.facts_end(held)
        if found != held:
            log.error("record_changed", position=found.position, recorded=held.position)
            metrics.FOREIGN_ROWS.inc()
            await self._calls.until_done(self._store.record_again, found)
        self._cursor = FoldCursor(found.position, found.inputs, found.digests, found.head)
        self._folded = self._cursor
        self._lag.committed(found.inputs, {})

    async def _replaces_another(self) -> bool:
        """Whether this database is empty and an earlier one, which it does not know, was not."""
        is_empty = self.position == 0 and self._decision_writer.is_empty
        return is_empty and await was_decided_on(self._bus)

    async def _reset_incarnation(self, before: str) -> None:
        """For an older copy of the database: readers hold later positions, and have to reload."""
        fresh, position = secrets.token_hex(8), self._cursor.position
        log.warning("restored", position=position, incarnation=fresh)
        await self._decision_writer.record_set_back(
            StateSetBack(incarnation=fresh, before=before, position=position)
        )
        await self._calls.until_done(
            self._store.reset_incarnation, self._leadership.epoch, position, fresh
        )
        self._leadership = Leadership(self._leadership.epoch, fresh)

    def _now(self) -> int:
        """The broker's clock, which also stamped the facts."""
        return self._ends.clock.at(time.monotonic(), time.time_ns())

    # --- facts --------------------------------------------------------------------------------

    async def _project(self, tasks: asyncio.TaskGroup) -> None:
        """Commits a small batch before it reads on; folds the next batch while a large one is being
        committed.

        The cluster state may be a batch ahead of the commit; the published deltas never are. If the
        database refuses a commit, its fold and all later ones are reverted.
        """
        wakeup = asyncio.Event()
        async with self._reading(wakeup) as readers:
            self._readers = readers
            self._created = {stream: reader.created for stream, reader in readers.items()}
            previous = tasks.create_task(asyncio.sleep(0))
            while True:
                await wait_and_clear(wakeup)
                await self._recover_refused()
                while records := await self._next(readers, wakeup):
                    batch = self._fold_ahead(records)
                    await previous
                    if self._refused is not None:  # the fold was based on the refused batch
                        self._revert(batch)
                        await self._recover_refused()
                        batch = self._fold_ahead(records)
                    frozen = self._snapshot_if_due()
                    if len(records) <= SMALL:
                        await self._commit(self._calls.try_inline, batch, records, frozen, wakeup)
                        await self._recover_refused()
                        await self._gather(len(records))
                    else:
                        write = self._calls.until_done
                        commit = self._commit(write, batch, records, frozen, wakeup)
                        previous = tasks.create_task(commit)

    async def _gather(self, committed: int) -> None:
        """Waits after a small commit, so that the next one holds more events."""
        wait_s = self._pace.gather_s(committed, time.perf_counter())
        if committed < self._settings.batch:  # otherwise more are waiting
            await asyncio.sleep(wait_s)

    def _fold_ahead(self, records: Sequence[Record]) -> SequencedBatch:
        batch = sequence(self._cluster_state, self._folded, records, self._created, self._now())
        batch.draft.commit()
        self._folded = batch.cursor
        return batch

    def _revert(self, batch: SequencedBatch) -> None:
        revert(self._cluster_state, batch.changes)
        self._folded = self._cursor

    async def _recover_refused(self) -> None:
        """After a refused commit: bisects the batch, quarantines the refused messages, and commits
        all others. Slow, and rare.
        """
        if self._refused is None:
            return
        (batch, records, why), self._refused = self._refused, None
        log.error("commit_refused", positions=_span(batch), why=why, what="looking for the message")
        self._revert(batch)
        self._snapshot_position = min(self._snapshot_position, self._cursor.position)
        await write_bisecting(records, self._commit_part, self._quarantine)

    async def _commit_part(self, records: Sequence[Record]) -> None:
        """Changes the cluster state only after the database has accepted the commit."""
        now = self._now()
        batch = sequence(self._cluster_state, self._cursor, records, self._created, now)
        await self._write(self._calls.until_done, batch, records)
        batch.draft.commit()
        self._folded = self._cursor

    async def _quarantine(self, record: Record, why: str) -> None:
        reason = f"the database refused its rows: {why}"
        now = self._now()
        batch = quarantined_batch(
            self._cluster_state, self._cursor, record, self._created, now, reason
        )
        await self._write(self._calls.until_done, batch, [record])
        batch.draft.commit()
        self._folded = self._cursor

    @contextlib.asynccontextmanager
    async def _reading(self, wakeup: asyncio.Event) -> AsyncGenerator[dict[Stream, Reader], None]:
        async with contextlib.AsyncExitStack() as stack:
            readers = {}
            for stream in MERGE_ORDER:
                at = self._cursor.inputs.get(stream, Input("", 0))
                reading = self._bus.reading(stream, at.sequence, at.created, wakeup, at.digest)
                readers[stream] = await stack.enter_async_context(reading)
            yield readers

    async def _next(self, readers: dict[Stream, Reader], wakeup: asyncio.Event) -> list[Record]:
        """The messages that have arrived; with a backlog, a full batch."""
        while self._is_behind(readers) and await wait_and_clear(wakeup, LINGER_S):
            pass
        records = self._in_merge_order(readers)
        if records:
            self._in_flight += len(records)
        return records

    def _is_behind(self, readers: dict[Stream, Reader]) -> bool:
        here = sum(map(len, readers.values()))
        if here >= self._settings.batch:
            return False
        return here + sum(reader.pending for reader in readers.values()) >= self._settings.batch

    def _in_merge_order(self, readers: dict[Stream, Reader]) -> list[Record]:
        """The next messages in merge order, which is the order of the positions."""
        records: list[Record] = []
        for stream in MERGE_ORDER:
            records.extend(readers[stream].take(self._settings.batch - len(records)))
        return records

    async def _commit(
        self,
        write: Callable[..., Awaitable[None]],
        batch: SequencedBatch,
        records: Sequence[Record],
        frozen: snapshots.FrozenState | None,
        wakeup: asyncio.Event,
    ) -> None:
        try:
            await self._write(write, batch, records)
        except Unwritable as error:
            self._refused = _RefusedCommit(batch, records, error.why)
            wakeup.set()  # the loop that folds recovers
            return
        if frozen is not None:  # only now: positions are final after the commit
            self._keeping = asyncio.create_task(self._keep(frozen), name="snapshot")

    async def _write(
        self,
        write: Callable[..., Awaitable[None]],
        batch: SequencedBatch,
        records: Sequence[Record],
    ) -> None:
        started = time.perf_counter()
        try:
            await write(self._store.commit, self._leadership.epoch, batch.commit)
        except DatabasePromoted:  # another projector may have led meanwhile, and left no trace
            await self._reset_incarnation(self._leadership.incarnation)
            await write(self._store.commit, self._leadership.epoch, batch.commit)
        except IntegrityError:  # a manifest of another program has the place of this one
            if not await self._decision_writer.move_manifests(
                self._leadership.epoch, self.position
            ):
                raise
            await write(self._store.commit, self._leadership.epoch, batch.commit)
        metrics.COMMIT_SECONDS.observe(time.perf_counter() - started)
        self._cursor = batch.cursor
        oldest = min(record.at for record in records)
        self._storage_to_commit_s = max(0.0, (self._now() - oldest) / 1e9)
        self._in_flight -= len(records)
        _count(batch)  # sets the position, before the age of it
        self._lag.committed(batch.cursor.inputs, newest_times(records))
        # A reader that misses the delta reads the database.
        await self._bus.send_live(self._subjects.delta, self._delta_of(batch))

    def _delta_of(self, batch: SequencedBatch) -> bytes:
        manifest, lives_in = batch.commit.manifest, self._leadership.incarnation
        sent = Sent(lives_in, self._clock, int(time.monotonic() * 1000), self._lag.behind_ms)
        delta = delta_of(manifest.p_from, manifest.p_to, batch.cursor.digests, batch.rows, sent)
        return encode_delta(delta, self._bus.max_payload // 2)

    # --- snapshots ----------------------------------------------------------------------------

    def _snapshot_if_due(self) -> snapshots.FrozenState | None:
        every = self._settings.snapshot_every
        if not every or self._folded.position - self._snapshot_position < every:
            return None
        if self._keeping is not None:
            if not self._keeping.done():
                return None  # one at a time: a later commit makes the next one
            self._keeping.result()  # an unknown failure ends the projector
        self._snapshot_position = self._folded.position
        return snapshots.frozen_state_of(self._cluster_state, self._folded)

    async def _keep(self, frozen: snapshots.FrozenState) -> None:
        """Packs and saves a snapshot in the background. After an error the snapshot is skipped."""
        made = await asyncio.to_thread(snapshots.pack, frozen, self._now())
        try:
            at_most = self._settings.snapshots
            await self._calls.once(self._store.save_snapshot, self._leadership.epoch, made, at_most)
            metrics.SNAPSHOT_POSITION.set(made.position)
        except TRANSIENT as error:
            log.warning("snapshot_missed", position=made.position, error=str(error.orig))
        except Unwritable as error:
            log.error("snapshot_missed", position=made.position, error=error.why)
        except Fenced:
            log.warning("snapshot_missed", position=made.position, error="another projector leads")

    # --- beats --------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            lag = sum(len(reader) + reader.pending for reader in self._readers.values())
            lag += self._in_flight
            metrics.LAG_EVENTS.set(lag)
            self.liveness.observe(self._cursor.position, lag, self._ends.problem)
            beat = Heartbeat(
                self._cursor.position,
                pack_digests(self._cursor.digests),
                self._leadership.incarnation,
                self._leadership.epoch,
                lag,
                int(self._storage_to_commit_s * 1000),
                self._decision_writer.entries,
                self._lag.behind_ms,
                self._lag.broker_ms,
                self._decision_writer.unwritten,
                int(time.monotonic() * 1000),
                list(self._copies.incomplete),
                self._ends.clock.at(time.monotonic(), 0),
                self._clock,
            )
            await self._bus.send_live(self._subjects.beat, encode(beat))
            await asyncio.sleep(BEAT_S)

    async def _count_missing(self) -> None:
        while True:
            lives = [
                life for state in self._cluster_state.producers.values() for life in state.lives
            ]
            metrics.PRODUCER_MISSING.set(sum(len(life.missing) + life.lost for life in lives))
            await asyncio.sleep(LOST_EVERY_S)


def _span(batch: SequencedBatch) -> str:
    return f"{batch.commit.manifest.p_from} to {batch.commit.manifest.p_to}"


def _count(batch: SequencedBatch) -> None:
    manifest = batch.commit.manifest
    poisoned = len(all_positions(batch.commit.poison))
    total = manifest.p_to - manifest.p_from + 1
    metrics.POSITION.set(manifest.p_to)
    _FOLDED.inc(total - batch.duplicates - poisoned)
    _DUPLICATE.inc(batch.duplicates)
    _QUARANTINED.inc(poisoned)
    for poison in batch.commit.poison[:LOGGED_PER_COMMIT]:
        log.warning("quarantined", position=poison.position, why=poison.why)
    for refused in (poison for poison in batch.commit.poison if is_refusal(poison.why)):
        metrics.REFUSED.labels(stream=refused.stream).inc(len(positions_of(refused)))
    if len(batch.commit.poison) > LOGGED_PER_COMMIT:
        log.warning("quarantined", messages=poisoned, what="`joulie dead list` shows all of them")
