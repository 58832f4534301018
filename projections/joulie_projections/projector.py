"""The sequencer: merges the streams into one gapless order, folds, commits, tells.

Everything that waits or fails happens here; what it computes is in `sequence`. A crash on any line
loses nothing: position and rows are committed together, and reading goes on from the position.
"""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from joulie_bus import metrics
from joulie_bus.log import Log, Reader
from joulie_bus.logging import get_logger
from joulie_bus.records import Message, Record
from joulie_bus.settings import integer, setting, some_time
from joulie_bus.subjects import MERGE_ORDER, Stream, Subjects
from joulie_bus.tasks import rung
from joulie_projections import heads
from joulie_projections.commit import Checkpoint, Input
from joulie_projections.decisions import DecisionLog, entry_of
from joulie_projections.heads import Signer
from joulie_projections.live import Beat, delta_of, encode, packed
from joulie_projections.rows import world_of
from joulie_projections.sequence import Sequenced, Standing, sequence
from joulie_projections.store import Store
from joulie_projections.world import World

BEAT_S = 0.25
HEAD_EVERY_S = 10.0
HEAD_EVERY_ROWS = 1000
IDLE_S = 0.5  # an empty wait ends so often, to notice that it is told to stop
RETRY_S = 0.5  # after a commit that the database refused (disk full, locked)
T = TypeVar("T")
log = get_logger("projector")


@dataclass(frozen=True, kw_only=True)
class ProjectorSettings:
    batch: int = setting(
        integer(1, 10_000), "PROJECTOR_BATCH", "1000", "Events in one transaction at most"
    )
    lease_s: float = setting(
        some_time,
        "PROJECTOR_LEASE",
        "3s",
        "How long a projector that stopped answering keeps a standby waiting",
    )


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
        self._bus = bus
        self._subjects = subjects
        self._signer = signer
        self._settings = settings
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._store = Store(engine)
        self._log = DecisionLog(engine)
        self._thread = ThreadPoolExecutor(1, "database")
        self._epoch = 0
        self._incarnation = ""
        self._decisions = 0
        self._lag_s = 0.0
        self._world = World()
        self._standing = Standing(0, {}, {}, b"")
        self._readers: dict[Stream, Reader] = {}

    async def run(self) -> None:
        """For ever; raises when it was fenced or a stream is not what it was."""
        try:
            await self._boot(await self._acquire())
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._project(), name="project")
                tasks.create_task(self._write_decisions(), name="decisions")
                tasks.create_task(self._sign_heads(), name="heads")
                tasks.create_task(self._keep_lease(), name="lease")
                tasks.create_task(self._beat(), name="beat")
        finally:
            self._thread.shutdown()  # a commit that was begun ends before the database is closed

    async def _database(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    # --- the lease ----------------------------------------------------------------------------

    async def _acquire(self) -> Checkpoint:
        waited = False
        while True:
            now = time.time_ns()
            until = now + int(self._settings.lease_s * 1e9)
            fresh = secrets.token_hex(8)
            held = await self._database(
                self._store.acquire, self._owner, until, now, fresh, _is_gone
            )
            if held is not None:
                log.info("leading", epoch=held.epoch, position=held.position)
                return held
            if not waited:
                log.info("standing_by", why="another projector holds the lease")
                waited = True
            await asyncio.sleep(self._settings.lease_s / 3)

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            until = time.time_ns() + int(self._settings.lease_s * 1e9)
            try:
                await self._database(self._store.renew, self._epoch, until)
            except OperationalError as error:
                log.warning("lease_not_renewed", error=str(error))

    async def _boot(self, held: Checkpoint) -> None:
        _, rows = await self._database(self._store.load)
        self._world = world_of(rows)
        self._epoch = held.epoch
        self._incarnation = held.incarnation
        self._standing = Standing(held.position, held.inputs, held.digests, held.head)
        metrics.POSITION.set(held.position)

    # --- facts --------------------------------------------------------------------------------

    async def _project(self) -> None:
        bell = asyncio.Event()
        async with self._reading(bell) as readers:
            self._readers = readers
            created = {stream: reader.created for stream, reader in readers.items()}
            while True:
                await rung(bell, IDLE_S)
                while records := self._merged(readers):
                    await self._advance(records, created)

    @contextlib.asynccontextmanager
    async def _reading(self, bell: asyncio.Event) -> AsyncGenerator[dict[Stream, Reader], None]:
        async with contextlib.AsyncExitStack() as stack:
            readers = {}
            for stream in MERGE_ORDER:
                at = self._standing.inputs.get(stream, Input("", 0))
                reading = self._bus.reading(stream, at.sequence, at.created, bell)
                readers[stream] = await stack.enter_async_context(reading)
            yield readers

    def _merged(self, readers: dict[Stream, Reader]) -> list[Record]:
        """What is here, in merge order: this order is the order of the positions."""
        records: list[Record] = []
        for stream in MERGE_ORDER:
            records.extend(readers[stream].take(self._settings.batch - len(records)))
        return records

    async def _advance(self, records: Sequence[Record], created: dict[Stream, str]) -> None:
        done = sequence(self._world, self._standing, records, created, time.time_ns())
        started = time.perf_counter()
        await self._commit(done)
        metrics.COMMIT_SECONDS.observe(time.perf_counter() - started)
        done.draft.commit()
        self._standing = done.standing
        self._lag_s = max(0.0, (time.time_ns() - min(record.at for record in records)) / 1e9)
        _count(done)
        limit = self._bus.max_payload // 2
        manifest = done.commit.manifest
        delta = delta_of(manifest.p_from, manifest.p_to, done.standing.digests, done.rows, limit)
        # A reader who misses it reads the database.
        await self._bus.tell(self._subjects.delta, delta)

    async def _commit(self, done: Sequenced) -> None:
        """Until the database takes it: nothing is read on before, so nothing piles up here."""
        while True:
            try:
                await self._database(self._store.commit, self._epoch, done.commit)
                return
            except OperationalError as error:
                log.error("commit_refused", error=str(error), what="tried again until it works")
                await asyncio.sleep(RETRY_S)

    # --- decisions ----------------------------------------------------------------------------

    async def _write_decisions(self) -> None:
        tip, at = await self._database(self._log.open)
        self._decisions = tip.pos
        bell = asyncio.Event()
        reading = self._bus.reading(Stream.DEC, at.sequence, at.created, bell)
        async with reading as reader:
            while True:
                await rung(bell, IDLE_S)
                while records := reader.take(self._settings.batch):
                    await self._append(records, reader.created)

    async def _append(self, records: Sequence[Record], created: str) -> None:
        entries = [entry_of(record) for record in records]
        read = Input(created, records[-1].sequence)
        while True:
            try:
                added = await self._database(self._log.append, self._epoch, entries, read)
                break
            except OperationalError as error:
                log.error("append_refused", error=str(error), what="tried again until it works")
                await asyncio.sleep(RETRY_S)
        self._decisions += added
        metrics.DECISIONS_WRITTEN.inc(added)

    async def _sign_heads(self) -> None:
        signed, waited = self._decisions, 0.0
        try:
            while True:
                await asyncio.sleep(BEAT_S)
                waited += BEAT_S
                if waited >= HEAD_EVERY_S or self._decisions - signed >= HEAD_EVERY_ROWS:
                    await self._sign_head()
                    signed, waited = self._decisions, 0.0
        finally:
            # A clean end leaves nothing unsigned; the broker is still there, it is stopped last.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(2):
                    await self._sign_head()

    async def _sign_head(self) -> None:
        """Signed in the database, and anchored outside of it."""
        head = await self._database(self._log.sign_head, self._signer, time.time_ns())
        if head is not None:
            message_id = f"head:{self._incarnation}:{head.pos}"
            message = Message(self._subjects.heads, message_id, heads.encode(head))
            await self._bus.publish([message])

    # --- telling ------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            lag = sum(len(reader) + reader.pending for reader in self._readers.values())
            metrics.LAG_EVENTS.set(lag)
            metrics.LAG_SECONDS.set(self._lag_s)
            beat = Beat(
                self._standing.position,
                packed(self._standing.digests),
                self._incarnation,
                self._epoch,
                lag,
                int(self._lag_s * 1000),
                self._decisions,
            )
            await self._bus.tell(self._subjects.beat, encode(beat))
            await asyncio.sleep(BEAT_S)


def _is_gone(owner: str) -> bool:
    """A process of this very machine that is no more need not be waited for."""
    host, _, pid = owner.rpartition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return int(pid) == os.getpid()


def _count(done: Sequenced) -> None:
    manifest = done.commit.manifest
    poisoned = len(done.commit.poison)
    total = manifest.p_to - manifest.p_from + 1
    metrics.POSITION.set(manifest.p_to)
    metrics.EVENTS.labels(fate="folded").inc(total - done.duplicates - poisoned)
    metrics.EVENTS.labels(fate="duplicate").inc(done.duplicates)
    metrics.EVENTS.labels(fate="quarantined").inc(poisoned)
    for poison in done.commit.poison:
        log.warning("quarantined", position=poison.position, why=poison.why)
