"""The sequencer: merges the streams into one gapless order, folds, commits, tells.

Everything that waits or fails happens here; what it computes is in `sequence`. A crash on any line
loses nothing: position and rows are committed together, and reading goes on from the position.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Engine

from joulie_bus.errors import Fenced, StreamGap, Unwritable
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.settings import choice, integer, setting
from joulie_bus.runtime.tasks import rung
from joulie_bus.streams.authority import is_refusal
from joulie_bus.streams.log import Log, Reader
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream, Subjects
from joulie_projections.decision_log.heads import ED25519, HMAC, Signer
from joulie_projections.decision_log.writer import DecisionWriter, Lead
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
from joulie_projections.projector.liveness import Progress
from joulie_projections.state.deltas import Heartbeat, encode, encode_delta, pack_digests
from joulie_projections.state.rows import cluster_state_of
from joulie_projections.state.state import ClusterState
from joulie_projections.store.bisection import put_in_halves
from joulie_projections.store.lives import is_gone, new_owner
from joulie_projections.store.retrying import PASSING, DatabaseCalls
from joulie_projections.store.store import Store

BATCH = 5000  # events of one transaction: more gain nothing, and a commit takes longer
LEASE_S = 3.0  # what a standby waits for a projector that stopped; several missed renewals
STALL_S = 60.0  # with events waiting and no position gained for so long, /healthz says no
SNAPSHOTS = 400  # of 25,000 events each: what can be looked back at quickly, in bounded room
OUTCOME_GRACE_S = 30.0  # for the answer about a bound pod to arrive by way of the stream
BEAT_S = 0.25
SMALL = 256  # events: what is handed over to the thread takes longer there than here
LINGER_S = 0.005  # for the broker to go on handing over what it has
TOLD = 20  # messages of one commit that have a log line of their own
LOST_EVERY_S = 10.0
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
    head_signature: str = setting(
        choice(ED25519, HMAC),
        "HEAD_SIGNATURE",
        ED25519,
        "How heads are signed; with hmac, whoever checks them needs the secret key itself",
    )


class _Refused(NamedTuple):
    """A batch whose values the database does not take."""

    done: SequencedBatch
    records: Sequence[Record]
    why: str


class Projector:
    """One per database; a second one waits for the lease."""

    def __init__(
        self,
        bus: Log,
        subjects: Subjects,
        engine: Engine,
        signer: Signer,
        settings: ProjectorSettings,
    ) -> None:
        self.progress = Progress(settings.stall_s)
        self._bus = bus
        self._subjects = subjects
        self._settings = settings
        self._owner = new_owner()
        self._store = Store(engine)
        self._calls = DatabaseCalls()
        self._scribe = DecisionWriter(bus, subjects, engine, self._calls, signer)
        self._lead = Lead(0, "")
        self._oldest = 0  # when the oldest event was stored that we hold and have not committed
        self._in_hand = 0
        self._lag_s = 0.0
        self._cluster_state = ClusterState()
        self._cursor = FoldCursor(0, {}, {}, b"")  # committed
        self._folded = self._cursor
        self._kept_at = 0  # position of the newest snapshot, made or in the making
        self._readers: dict[Stream, Reader] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._created: dict[Stream, str] = {}
        self._refused: _Refused | None = None

    @property
    def position(self) -> int:
        """What is committed."""
        return self._cursor.position

    async def run(self) -> None:
        """For ever; raises when it was fenced or a stream is not what it was."""
        try:
            await self._boot(await self._acquire())
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._project(tasks), name="project")
                tasks.create_task(self._scribe.write(self._lead, self._settings.batch))
                tasks.create_task(self._scribe.sign(self._lead))
                grace_s = self._settings.outcome_grace_s
                tasks.create_task(self._scribe.tell_outcomes(self._lead, grace_s))
                tasks.create_task(self._keep_lease(), name="lease")
                tasks.create_task(self._beat(), name="beat")
                tasks.create_task(self._count_lost(), name="lost")
        except* Fenced:
            metrics.FENCED.inc()
            raise
        except* StreamGap:
            metrics.GAPS.inc()
            raise
        finally:
            await self._end()

    async def _end(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self._release()
        self._calls.close()

    # --- the lease ----------------------------------------------------------------------------

    async def _acquire(self) -> Checkpoint:
        waited = False
        while True:
            now = time.time_ns()
            until = now + int(self._settings.lease_s * 1e9)
            fresh = secrets.token_hex(8)
            held = await self._calls.until_done(
                self._store.acquire, self._owner, until, now, fresh, is_gone
            )
            if held is not None:
                log.info("leading", epoch=held.epoch, position=held.position)
                return held
            if not waited:
                log.info("standing_by", why="another projector holds the lease")
                waited = True
            self.progress.stands_by()
            await asyncio.sleep(self._settings.lease_s / 3)

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            until = time.time_ns() + int(self._settings.lease_s * 1e9)
            try:
                await self._calls.once(self._store.renew, self._lead.epoch, until)
            except PASSING as error:
                log.warning("lease_not_renewed", error=str(error.orig))

    async def _release(self) -> None:
        """So that the next one need not wait. If it fails, it waits."""
        if not self._lead.epoch:
            return
        with contextlib.suppress(Fenced, TimeoutError, *PASSING):
            async with asyncio.timeout(RELEASE_S):
                await self._calls.once(self._store.renew, self._lead.epoch, 0)

    async def _boot(self, held: Checkpoint) -> None:
        _, rows = await self._calls.until_done(self._store.load)
        self._cursor = FoldCursor(held.position, held.inputs, held.digests, held.head)
        snapshots.require_intact("The rows", rows, self._cursor)
        self._folded = self._cursor
        self._cluster_state = cluster_state_of(rows)
        self._lead = Lead(held.epoch, held.incarnation)
        self._kept_at = await self._calls.until_done(self._store.newest_snapshot)
        metrics.EPOCH.set(held.epoch)
        metrics.POSITION.set(held.position)
        if not await self._scribe.open(held.epoch):
            await self._begin_anew()

    async def _begin_anew(self) -> None:
        """An older copy of the database: what readers believe is of a future that never was."""
        fresh = secrets.token_hex(8)
        log.warning("restored", position=self._cursor.position, incarnation=fresh)
        await self._calls.until_done(self._store.begin_anew, self._lead.epoch, fresh)
        self._lead = Lead(self._lead.epoch, fresh)

    # --- facts --------------------------------------------------------------------------------

    async def _project(self, tasks: asyncio.TaskGroup) -> None:
        """A small batch is committed before anything else is read; while a large one is on its way
        to the disk, the next one is folded.

        The world may be a batch ahead of what is committed; what readers get never is. A
        commit that the database refuses is taken back, with all that was folded after it.
        """
        bell = asyncio.Event()
        async with self._reading(bell) as readers:
            self._readers = readers
            self._created = {stream: reader.created for stream, reader in readers.items()}
            before = tasks.create_task(asyncio.sleep(0))
            while True:
                await rung(bell)
                await self._mend()
                while records := await self._next(readers, bell):
                    done = self._fold_ahead(records)
                    await before
                    if self._refused is not None:  # what was folded since rests on it
                        self._take_back(done)
                        await self._mend()
                        done = self._fold_ahead(records)
                    moment = self._moment_now_and_then()
                    if len(records) <= SMALL:
                        await self._commit(self._calls.at_once, done, records, moment, bell)
                        await self._mend()
                    else:
                        write = self._calls.until_done
                        commit = self._commit(write, done, records, moment, bell)
                        before = tasks.create_task(commit)

    def _fold_ahead(self, records: Sequence[Record]) -> SequencedBatch:
        done = sequence(self._cluster_state, self._folded, records, self._created, time.time_ns())
        done.draft.commit()
        self._folded = done.cursor
        return done

    def _take_back(self, done: SequencedBatch) -> None:
        revert(self._cluster_state, done.changes)
        self._folded = self._cursor

    async def _mend(self) -> None:
        """After a refused commit: its facts are put in halves, the one that is in the way is found
        and set aside, and all others are committed. Slow, and rare.
        """
        if self._refused is None:
            return
        (done, records, why), self._refused = self._refused, None
        log.error("commit_refused", positions=_span(done), why=why, what="looking for the message")
        self._take_back(done)
        self._kept_at = min(self._kept_at, self._cursor.position)
        await put_in_halves(records, self._put, self._set_aside)

    async def _put(self, records: Sequence[Record]) -> None:
        """Changes the world only once the database has taken it."""
        now = time.time_ns()
        done = sequence(self._cluster_state, self._cursor, records, self._created, now)
        await self._write(self._calls.until_done, done, records)
        done.draft.commit()
        self._folded = self._cursor

    async def _set_aside(self, record: Record, why: str) -> None:
        told = f"the database refused its rows: {why}"
        now = time.time_ns()
        done = quarantined_batch(
            self._cluster_state, self._cursor, record, self._created, now, told
        )
        await self._write(self._calls.until_done, done, [record])
        done.draft.commit()
        self._folded = self._cursor

    @contextlib.asynccontextmanager
    async def _reading(self, bell: asyncio.Event) -> AsyncGenerator[dict[Stream, Reader], None]:
        async with contextlib.AsyncExitStack() as stack:
            readers = {}
            for stream in MERGE_ORDER:
                at = self._cursor.inputs.get(stream, Input("", 0))
                reading = self._bus.reading(stream, at.sequence, at.created, bell, at.digest)
                readers[stream] = await stack.enter_async_context(reading)
            yield readers

    async def _next(self, readers: dict[Stream, Reader], bell: asyncio.Event) -> list[Record]:
        """What is here; a full batch where there are so many more that none of them is fresh."""
        while self._is_behind(readers) and await rung(bell, LINGER_S):
            pass
        records = self._merged(readers)
        if records:
            self._in_hand += len(records)
            self._oldest = self._oldest or min(record.at for record in records)
        return records

    def _is_behind(self, readers: dict[Stream, Reader]) -> bool:
        here = sum(map(len, readers.values()))
        if here >= self._settings.batch:
            return False
        return here + sum(reader.pending for reader in readers.values()) >= self._settings.batch

    def _merged(self, readers: dict[Stream, Reader]) -> list[Record]:
        """In merge order: this order is the order of the positions."""
        records: list[Record] = []
        for stream in MERGE_ORDER:
            records.extend(readers[stream].take(self._settings.batch - len(records)))
        return records

    async def _commit(
        self,
        write: Callable[..., Awaitable[None]],
        done: SequencedBatch,
        records: Sequence[Record],
        moment: snapshots.FrozenState | None,
        bell: asyncio.Event,
    ) -> None:
        try:
            await self._write(write, done, records)
        except Unwritable as error:
            self._refused = _Refused(done, records, error.why)
            bell.set()  # it is mended where facts are folded
            return
        if moment is not None:  # only now: what is not committed may yet get other positions
            self._keeping = asyncio.create_task(self._keep(moment), name="snapshot")

    async def _write(
        self, write: Callable[..., Awaitable[None]], done: SequencedBatch, records: Sequence[Record]
    ) -> None:
        started = time.perf_counter()
        await write(self._store.commit, self._lead.epoch, done.commit)
        metrics.COMMIT_SECONDS.observe(time.perf_counter() - started)
        self._cursor = done.cursor
        self._lag_s = max(0.0, (time.time_ns() - min(record.at for record in records)) / 1e9)
        self._in_hand -= len(records)
        self._oldest = 0
        _count(done)
        limit = self._bus.max_payload // 2
        manifest = done.commit.manifest
        delta = encode_delta(manifest.p_from, manifest.p_to, done.cursor.digests, done.rows, limit)
        # A reader who misses it reads the database.
        await self._bus.tell(self._subjects.delta, delta)

    # --- snapshots ----------------------------------------------------------------------------

    def _moment_now_and_then(self) -> snapshots.FrozenState | None:
        every = self._settings.snapshot_every
        if not every or self._folded.position - self._kept_at < every:
            return None
        self._kept_at = self._folded.position
        return snapshots.frozen_state_of(self._cluster_state, self._folded)

    async def _keep(self, moment: snapshots.FrozenState) -> None:
        """Beside the fold. One that fails is missed; the next one is on its way."""
        made = await asyncio.to_thread(snapshots.pack, moment, time.time_ns())
        try:
            at_most = self._settings.snapshots
            await self._calls.once(self._store.keep, self._lead.epoch, made, at_most)
            metrics.SNAPSHOT_POSITION.set(made.position)
        except PASSING as error:
            log.warning("snapshot_missed", position=made.position, error=str(error.orig))
        except Unwritable as error:
            log.error("snapshot_missed", position=made.position, error=error.why)
        except Fenced:
            log.warning("snapshot_missed", position=made.position, error="another one leads")

    # --- telling ------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            lag = sum(len(reader) + reader.pending for reader in self._readers.values())
            lag += self._in_hand
            age_s = (time.time_ns() - self._oldest) / 1e9 if self._oldest else 0.0
            lag_s = max(age_s, self._lag_s if lag else 0.0)
            metrics.LAG_EVENTS.set(lag)
            metrics.LAG_SECONDS.set(lag_s)
            self.progress.saw(self._cursor.position, lag)
            beat = Heartbeat(
                self._cursor.position,
                pack_digests(self._cursor.digests),
                self._lead.incarnation,
                self._lead.epoch,
                lag,
                int(self._lag_s * 1000),
                self._scribe.entries,
            )
            await self._bus.tell(self._subjects.beat, encode(beat))
            await asyncio.sleep(BEAT_S)

    async def _count_lost(self) -> None:
        while True:
            lives = [
                life for state in self._cluster_state.producers.values() for life in state.lives
            ]
            metrics.PRODUCER_MISSING.set(sum(len(life.missing) + life.lost for life in lives))
            await asyncio.sleep(LOST_EVERY_S)


def _span(done: SequencedBatch) -> str:
    return f"{done.commit.manifest.p_from} to {done.commit.manifest.p_to}"


def _count(done: SequencedBatch) -> None:
    manifest = done.commit.manifest
    poisoned = len(all_positions(done.commit.poison))
    total = manifest.p_to - manifest.p_from + 1
    metrics.POSITION.set(manifest.p_to)
    _FOLDED.inc(total - done.duplicates - poisoned)
    _DUPLICATE.inc(done.duplicates)
    _QUARANTINED.inc(poisoned)
    for poison in done.commit.poison[:TOLD]:
        log.warning("quarantined", position=poison.position, why=poison.why)
    for refused in (poison for poison in done.commit.poison if is_refusal(poison.why)):
        metrics.REFUSED.labels(stream=refused.stream).inc(len(positions_of(refused)))
    if len(done.commit.poison) > TOLD:
        log.warning("quarantined", messages=poisoned, what="`joulie dead list` shows all of them")
