"""The projection as a reader holds it: in memory, milliseconds old, and aware of its own age.

Boots from rows and position of one moment, then follows what each commit changed. A hole is read
from the database; a digest that differs means reading everything anew. With the bus down it asks
the database; with both down it serves what it has, and its age says so.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from joulie_bus.errors import ViewBehind
from joulie_bus.events import WorkloadClass
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import background, rung
from joulie_bus.streams.log import Log
from joulie_bus.streams.subjects import Subjects
from joulie_projections.fold.commit import Checkpoint
from joulie_projections.state.deltas import Delta, Heartbeat, decode_delta, decode_heartbeat
from joulie_projections.state.rows import VIEWED, Row
from joulie_projections.state.state import ClusterState
from joulie_projections.store.store import Store
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.rows_held import HeldRows

SILENCE_S = 1.0  # four beats missed: ask the database
POLL_S = 0.25
BACKWARDS = 4  # beats in a row from before our position: the database is not the one we read
log = get_logger("view")


class ViewSnapshot(NamedTuple):
    """One moment; every number that is read from it belongs together."""

    position: int
    twin_columns: TwinColumns
    age_ms: int
    namespaces: Mapping[str, WorkloadClass] = {}  # those that give their pods a class


class View:
    """`async with View.open(...)`: follows for as long as the block lasts."""

    def __init__(self, engine: Engine, subjects: Subjects) -> None:
        self._store = Store(engine)
        self._subjects = subjects
        self._thread = ThreadPoolExecutor(1, "view")
        self._held = HeldRows()
        self._incarnation = ""
        self._waiting: list[Delta] = []  # came while the database was being read
        self._reading = asyncio.Lock()
        self._heard = 0.0
        self._behind = asyncio.Event()
        self._moved = asyncio.Event()  # one for each move
        self._moves = 0
        self._reload = ""
        self._backwards = 0
        self.last_beat: Heartbeat | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, bus: Log, engine: Engine, subjects: Subjects
    ) -> AsyncGenerator["View", None]:
        view = cls(engine, subjects)
        try:
            # Listen first, read then: what is committed in between is in one of the two.
            async with (
                bus.listening(subjects.delta, view._on_delta),
                bus.listening(subjects.beat, view._on_beat),
                background(view._follow(), "view"),
            ):
                yield view
        finally:
            view._thread.shutdown()  # what is being read is read before the database is closed

    @property
    def is_ready(self) -> bool:
        return self._held.position >= 0

    @property
    def position(self) -> int:
        return max(0, self._held.position)

    @property
    def cluster_state(self) -> ClusterState:
        """Whole between two awaits; who awaits must look again."""
        return self._held.cluster_state

    @property
    def age_s(self) -> float:
        """How long ago the projector was last heard of, by bus or by database."""
        return time.monotonic() - self._heard if self._heard else float("inf")

    @property
    def age_ms(self) -> int:
        return int(min(self.age_s, 1e9) * 1000)

    def snapshot(self) -> ViewSnapshot:
        return ViewSnapshot(
            self.position, self._held.twin_columns(), self.age_ms, self.cluster_state.namespaces
        )

    async def wait_for(self, position: int, timeout_s: float) -> None:
        """Returns once the view has come so far: read your own writes."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._held.position < position:
                    await self._moved.wait()
        except TimeoutError as error:
            raise ViewBehind(self._held.position, position, timeout_s) from error

    async def moved_since(self, moves: int) -> int:
        """Returns once it has moved so often and again, be it back to an older database."""
        while self._moves <= moves:
            await self._moved.wait()
        return self._moves

    async def wait_ready(self, timeout_s: float) -> None:
        await self.wait_for(0, timeout_s)

    def _on_delta(self, data: bytes) -> None:
        delta = decode_delta(data)
        self._heard = time.monotonic()
        if self._reading.locked() or not self.is_ready:
            self._waiting.append(delta)
            return
        self._apply(delta)

    def _apply(self, delta: Delta) -> None:
        mine = self._held.position
        if delta.p_to <= mine:
            return
        if delta.p_from > mine + 1 or delta.rows is None:
            self._behind.set()
            return
        self._held.put([Row(*row) for row in delta.rows], delta.p_to)
        if not self._held.agrees(delta.digests):
            self._ask("digest")
        self._tell()

    def _on_beat(self, data: bytes) -> None:
        beat = decode_heartbeat(data)  # what is none is no sign of life
        self._heard = time.monotonic()
        self.last_beat = beat
        if not self.is_ready:
            return
        # A delta may overtake a beat, and so may the database: one such beat means nothing.
        self._backwards = self._backwards + 1 if beat.position < self._held.position else 0
        if beat.incarnation != self._incarnation or self._backwards >= BACKWARDS:
            self._ask("another database")
        elif beat.position > self._held.position:
            self._behind.set()
        elif not self._backwards and not self._held.agrees(beat.digests):
            self._ask("digest")

    def _ask(self, reason: str) -> None:
        """Everything anew."""
        self._reload = self._reload or reason
        self._behind.set()

    async def _follow(self) -> None:
        self._ask("boot")
        while True:
            called = await rung(self._behind, POLL_S)
            metrics.VIEW_AGE_SECONDS.set(min(self.age_s, 1e9))
            if not self.is_ready:
                self._reload = "boot"
            if called or not self.is_ready or self.age_s > SILENCE_S:
                await self._catch_up()

    async def _catch_up(self) -> None:
        try:
            await self._read_database()
        except (SQLAlchemyError, msgspec.DecodeError) as error:
            log.warning("view_cannot_read", error=str(error), serves=self.position)
            await asyncio.sleep(POLL_S)
            self._behind.set()

    async def _read_database(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._reading:
            reason, self._reload = self._reload, ""
            if reason:
                booted = await loop.run_in_executor(self._thread, self._booted)
                self._start_over(reason, booted)
            else:
                changes = await loop.run_in_executor(
                    self._thread, self._store.changes_since, self._held.position, VIEWED
                )
                self._catch_up_with(*changes)
        waiting, self._waiting = self._waiting, []
        for delta in waiting:
            if self.is_ready:
                self._apply(delta)
        self._tell()

    def _booted(self) -> "_Booted | None":
        """In the thread, so that answers go on meanwhile; in portions, so that no row is in memory
        as bytes and as what it says for long."""
        held = HeldRows()
        with self._store.reading(VIEWED) as (found, portions):
            if found is None:
                return None
            for rows in portions:
                held.put(rows, found.position)
            held.put([], found.position)  # also where there is no row yet
        held.twin_columns()
        return _Booted(found, held)

    def _start_over(self, reason: str, booted: "_Booted | None") -> None:
        metrics.VIEW_RELOADS.labels(reason=reason).inc()
        if reason == "digest":
            metrics.DIGEST_MISMATCHES.inc()
        if reason != "boot":
            log.warning("view_reloaded", why=reason, position=self.position)
        if booted is not None:
            self._heard = time.monotonic()
            self._incarnation = booted.found.incarnation
            self._held = booted.held

    def _catch_up_with(self, found: Checkpoint | None, rows: list[Row] | None) -> None:
        if found is None:
            return
        if rows is None:
            self._ask("trimmed")  # what has gone since our position is no longer known
            return
        if found.incarnation != self._incarnation or found.position < self._held.position:
            self._ask("another database")
            return
        if found.position > self._held.position:
            # The database itself moved: somebody commits, though the bus may be silent.
            self._heard = time.monotonic()
        self._held.put(rows, found.position)

    def _tell(self) -> None:
        metrics.POSITION.set(self.position)
        self._moves += 1
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class _Booted(NamedTuple):
    found: Checkpoint
    held: HeldRows
