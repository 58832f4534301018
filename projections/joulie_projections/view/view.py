"""The in-memory projection of a reader: it follows the projector's commits and reports its ages.

A view loads all rows at one position and then applies the changes of each commit. It reads missed
changes from the database, and reloads all rows after a digest mismatch. With the bus down it polls
the database; with both down it serves its last rows, and its ages grow. A paused view drops the
changes, and reads them from the database when it is resumed.

A view has two ages: since the last message of the projector, and since the moment until which its
rows include everything that the broker had stored.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import msgspec
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from joulie_bus.errors import ViewBehind
from joulie_bus.events import WorkloadClass
from joulie_bus.log.protocol import Log
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.runtime.vital_tasks import VitalTask, living
from joulie_bus.streams.subjects import Subjects
from joulie_projections.decision_log.refusals import read_refusals
from joulie_projections.fold.commit import Checkpoint
from joulie_projections.pods.devices import GpusAsked, no_gpus_known
from joulie_projections.pods.refusal import Refusal
from joulie_projections.state.broker_clock import BrokerClock
from joulie_projections.state.completeness import (
    PositionCompleteness,
    TransitDelay,
    ViewAges,
    known_s,
    milliseconds,
)
from joulie_projections.state.deltas import Delta, Heartbeat, Sent, decode_delta, decode_heartbeat
from joulie_projections.state.rows import VIEWED, Row
from joulie_projections.state.state import ClusterState, PodState
from joulie_projections.store.monotonic import monotonic_clock
from joulie_projections.store.store import Progress, Store
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.rows_held import HeldRows

SILENCE_S = 1.0  # four heartbeats missed: poll the database
UNHEARD_S = 4.0  # the broker's server may be cut from that of the projector
POLL_S = 0.25
ROUNDED_S = 0.001  # ages are whole milliseconds, and not above the exact ones
LOG_EVERY = 40  # reads that fail: about ten seconds
WAITING_BYTES = 16 * 1024 * 1024  # of changes in memory while the database is read
RELOADS = ("boot", "digest", "another database", "trimmed")  # the reasons
BACKWARDS = 4  # consecutive heartbeats below the view's position that mean another database
log = get_logger("view")
_Read = TypeVar("_Read")


class ViewSnapshot(NamedTuple):
    """A consistent snapshot of the view at one position."""

    position: int
    twin_columns: TwinColumns
    age_ms: int  # since the last message of the projector
    namespaces: Mapping[str, WorkloadClass] = {}  # namespaces that set a class for their pods
    behind_ms: int = 0  # since the moment until which the rows include everything stored
    taken: float = 0.0  # by the monotonic clock
    incarnation: str = ""  # of the database
    gpus_asked: GpusAsked = no_gpus_known  # by claims
    pods: Mapping[str, PodState] = {}  # by uid; the live ones until the next await

    @property
    def oldest_ms(self) -> int:
        return max(self.age_ms, self.behind_ms)


class View:
    """Follows the projector inside `async with View.open(...)`."""

    _bus: Log | None = None
    _unread_tries = 0  # of the database, in a row

    def __init__(self, engine: Engine, subjects: Subjects) -> None:
        self._engine = engine
        self._store = Store(engine)
        self._subjects = subjects
        self._thread = ThreadPoolExecutor(1, "view")
        self._held = HeldRows()
        self._incarnation = ""
        self._waiting: list[Delta] = []  # received while the database is read
        self._waiting_bytes = 0
        self._reading = asyncio.Lock()
        self._last_contact = 0.0
        self._complete = PositionCompleteness()
        self._paused = False
        self._is_dropping = False  # as the metrics have it
        self._unread_since = 0.0  # 0: the rows have not been paused since they were read
        self._needs_read = asyncio.Event()
        self._moved = asyncio.Event()  # replaced at each move
        self._moves = 0
        self._reload = ""
        self._backwards = 0
        self._beat_at = 0.0
        self._transit = TransitDelay(monotonic_clock())
        self._broker_clock = BrokerClock()
        self._renewed = 0  # until when the projector has the lease, when the database was asked
        self._asked = 0.0
        self.last_beat: Heartbeat | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, bus: Log, engine: Engine, subjects: Subjects
    ) -> AsyncGenerator["View", None]:
        view = cls(engine, subjects)
        view._bus = bus
        try:
            # Subscribe before the first read, so that no commit is missed.
            with (
                metrics.VIEW_AGE_SECONDS.computed_by(lambda: known_s(view.ages.heard_ms)),
                metrics.VIEW_BEHIND_SECONDS.computed_by(view._shown_behind_s),
            ):
                metrics.VIEW_PAUSED.set(0)
                for reason in RELOADS:
                    metrics.VIEW_RELOADS.labels(reason=reason)
                async with (
                    bus.listening(subjects.delta, view._on_delta),
                    bus.listening(subjects.beat, view._on_beat),
                    living(VitalTask.VIEW, view._follow),
                ):
                    yield view
        finally:
            view._thread.shutdown()  # wait for the current read before the engine is closed

    @property
    def is_ready(self) -> bool:
        return self._held.position >= 0

    @property
    def position(self) -> int:
        return max(0, self._held.position)

    @property
    def moves(self) -> int:
        """How often it has moved, in either direction."""
        return self._moves

    @property
    def nodes_changed(self) -> int:
        """Since the last snapshot, whose rows the next one changes."""
        return self._held.nodes_changed

    @property
    def cluster_state(self) -> ClusterState:
        """The live state. It is consistent only until the next await."""
        return self._held.cluster_state

    @property
    def age_s(self) -> float:
        """The older of the two ages, in seconds; of a paused view at least since it was paused."""
        paused_s = _seconds_since(self._unread_since) if self._unread_since else 0.0
        return max(self.ages.oldest_ms / 1000, paused_s)

    def now_ns(self) -> int:
        """The time by the broker's clock, as facts have it; by this machine's until it is known."""
        return self._broker_clock.at(time.monotonic(), time.time_ns())

    @property
    def ages(self) -> ViewAges:
        return ViewAges(milliseconds(self._silence_s), self._complete.age_ms(time.monotonic()))

    def _shown_behind_s(self) -> float | None:
        """Of a paused view nothing: it is behind because it is not needed."""
        return None if self._is_dropping else known_s(self.ages.behind_ms)

    def ages_of(self, seen: ViewSnapshot) -> ViewAges:
        """The present ages of an earlier snapshot of this view."""
        ages = self.ages
        if seen.position == self.position:
            return ages
        until = seen.taken - seen.behind_ms / 1000
        if seen.incarnation == self._incarnation:
            until = max(until, self._complete.until_of(seen.position))
        return ages._replace(behind_ms=max(ages.behind_ms, milliseconds(_seconds_since(until))))

    @property
    def _silence_s(self) -> float:
        return _seconds_since(self._last_contact) if self._last_contact else float("inf")

    def snapshot(self) -> ViewSnapshot:
        columns, ages = self._held.twin_columns(), self.ages
        return ViewSnapshot(
            self.position,
            columns,
            ages.heard_ms,
            self.cluster_state.namespaces,
            ages.behind_ms,
            time.monotonic(),
            self._incarnation,
            self.cluster_state.gpus_asked,
            self.cluster_state.pods,
        )

    async def wait_for(self, position: int, timeout_s: float) -> None:
        """Waits until the view reaches a position. Raises ViewBehind after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._held.position < position:
                    await self._moved.wait()
        except TimeoutError as error:
            raise ViewBehind(self._held.position, position, timeout_s) from error

    async def includes_all_before(self, moment: float, timeout_s: float) -> bool:
        """Waits until the rows include everything stored before a moment of this process's
        monotonic clock; False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._complete.until < moment + ROUNDED_S:
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        return True

    async def moved_since(self, moves: int) -> int:
        """Waits until the view has moved more than `moves` times, in either direction; returns the
        number of moves."""
        while self._moves <= moves:
            await self._moved.wait()
        return self._moves

    def pause(self) -> None:
        """Drops changes until `resume`: the rows stay as they are, and grow old."""
        self._paused = True
        self._show_dropping(True)
        self._unread_since = self._unread_since or time.monotonic()

    async def resume(self, timeout_s: float) -> None:
        """Returns when the rows are current again. Raises ViewBehind after the timeout; the view
        continues to try."""
        self._paused = False
        if not self._unread_since:
            return
        self._needs_read.set()
        try:
            async with asyncio.timeout(timeout_s):
                while self._unread_since:
                    await self._moved.wait()
        except TimeoutError as error:
            if not self._paused:
                self._show_dropping(False)  # it is needed, and behind
            newest = self.last_beat.position if self.last_beat else self.position
            raise ViewBehind(self.position, newest, timeout_s) from error

    async def refusals(self, uids: Sequence[str]) -> list[Refusal]:
        """Those of these pods that the newest answer in the decision log refused every node.

        None of them while the database does not answer.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, read_refusals, self._engine, uids)
        except SQLAlchemyError as error:
            log.warning("answers_not_read", error=str(error))
            return []

    @property
    def waiting_bytes(self) -> int:
        """Bytes of changes that wait for the end of a read."""
        return min(self._waiting_bytes, WAITING_BYTES)

    async def wait_ready(self, timeout_s: float) -> None:
        await self.wait_for(0, timeout_s)

    def _on_delta(self, data: bytes) -> None:
        if self._paused:
            return
        delta = decode_delta(data)
        if delta.sent is not None:
            self._note_sent(delta.sent, delta.p_to)
        if self._reading.locked():
            self._keep_waiting(delta, len(data))
        elif self.is_ready:  # otherwise the first read finds it in the database
            self._apply(delta)

    def _keep_waiting(self, delta: Delta, size: int) -> None:
        """Until the read ends. Too many of them are dropped, and read from the database."""
        self._waiting_bytes += size
        if self._waiting_bytes > WAITING_BYTES:
            self._waiting.clear()
            self._needs_read.set()
        else:
            self._waiting.append(delta)

    def _apply(self, delta: Delta) -> None:
        mine = self._held.position
        if delta.sent is not None and delta.sent.incarnation != self._incarnation:
            self._request_reload("another database")  # its positions stand for another history
            return
        if delta.p_to <= mine:
            return
        if delta.p_from > mine + 1 or delta.rows is None:
            self._needs_read.set()
            return
        self._complete.leave(mine)
        self._held.put([Row(*row) for row in delta.rows], delta.p_to)
        if not self._held.matches(delta.digests):
            self._request_reload("digest")
        self._notify()

    def _on_beat(self, data: bytes) -> None:
        beat = decode_heartbeat(data)  # raises before the contact time is updated
        self.last_beat = beat
        self._beat_at = self._sent_at(beat)
        if beat.broker_ns:
            self._broker_clock.note(beat.broker_ns, self._beat_at)
        self._last_contact = max(self._last_contact, self._beat_at)
        if self._paused:
            self._mark_complete()
            return
        if not self.is_ready:
            return
        # Deltas and database reads can overtake a heartbeat, so one older heartbeat is normal.
        self._backwards = self._backwards + 1 if beat.position < self._held.position else 0
        if beat.incarnation != self._incarnation or self._backwards >= BACKWARDS:
            self._request_reload("another database")
        elif beat.position > self._held.position:
            self._mark_complete()
            self._needs_read.set()
        elif self._backwards:
            return
        elif self._held.matches(beat.digests):
            self._mark_complete()
        else:
            self._request_reload("digest")

    def _sent_at(self, beat: Heartbeat) -> float:
        """By the clock of this process; of older projectors, when the heartbeat arrived."""
        if beat.sent_ms < 0:
            return time.monotonic()
        return self._by_own_clock(beat.clock or str(beat.epoch), beat.sent_ms)

    def _by_own_clock(self, clock: str, sent_ms: int) -> float:
        now = time.monotonic()
        return now - self._transit.of(clock, sent_ms / 1000, now)

    def _note_sent(self, sent: Sent, position: int) -> None:
        """A reader without CPU may have read a change, and not yet the heartbeat after it."""
        if sent.incarnation != self._incarnation:
            return
        moment = self._by_own_clock(sent.clock, sent.sent_ms)
        self._last_contact = max(self._last_contact, moment)
        self._complete.mark(position, moment - sent.behind_ms / 1000)

    def _mark_complete(self) -> None:
        """The last heartbeat states until when its position is complete, in this history."""
        beat = self.last_beat
        if beat is None or beat.incarnation != self._incarnation:
            return
        self._complete.mark(beat.position, self._beat_at - behind_ms_of(beat) / 1000)
        self._complete.advance(self._includes)

    def _includes(self, position: int) -> bool:
        return self._held.position >= position

    def _request_reload(self, reason: str) -> None:
        """Schedules a reload of all rows."""
        self._reload = self._reload or reason
        self._needs_read.set()

    async def _follow(self) -> None:
        self._request_reload("boot")
        while True:
            is_woken = await wait_and_clear(self._needs_read, POLL_S)
            if not self.is_ready:
                self._reload = "boot"
            elif self._paused:
                continue
            if is_woken or not self.is_ready or self._silence_s > SILENCE_S:
                await self._catch_up()

    async def _catch_up(self) -> None:
        try:
            await self._read_database()
            self._unread_tries = 0
        except (SQLAlchemyError, msgspec.DecodeError) as error:
            if not self._unread_tries % LOG_EVERY:
                log.warning("view_cannot_read", error=str(error), serves=self.position)
            self._unread_tries += 1
            if self._bus is not None and self._silence_s > UNHEARD_S:
                self._bus.leave_server("no heartbeat, and the database cannot be read")
            await asyncio.sleep(POLL_S)
            self._needs_read.set()

    async def _read_database(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._reading:
            self._waiting, self._waiting_bytes = [], 0  # their commits are in the database
            reads_all = not self._paused  # no change is dropped after this read began
            reason, self._reload = self._reload, ""
            if reason:
                progress, loaded = await loop.run_in_executor(
                    self._thread, self._with_progress, self._load
                )
                self._replace_rows(reason, loaded)
            else:
                progress, changes = await loop.run_in_executor(
                    self._thread, self._with_progress, self._changes
                )
                self._catch_up_with(*changes)
            self._note_progress(*progress)
        if reads_all and not self._paused and not self._reload:
            self._unread_since = 0.0
            self._show_dropping(False)
        waiting, self._waiting = self._waiting, []
        for delta in waiting:
            if self.is_ready:
                self._apply(delta)
        self._notify()

    def _with_progress(
        self, read: Callable[[], _Read]
    ) -> tuple[tuple[Progress | None, float], _Read]:
        """In the view's thread: a reader without CPU waits long for each turn of its event loop."""
        asked = time.monotonic()
        return (self._store.progress(), asked), read()

    def _changes(self) -> tuple[Checkpoint | None, list[Row] | None]:
        return self._store.changes_since(self._held.position, VIEWED)

    def _note_progress(self, found: Progress | None, asked: float) -> None:
        """The renewals of the lease replace heartbeats that do not arrive."""
        if found is None:
            return
        if self._renewed not in (0, found.until):  # renewed since the last question
            self._last_contact = max(self._last_contact, self._asked)
        self._renewed, self._asked = found.until, asked
        if found.incarnation == self._incarnation:
            moment = asked - found.behind_s
            self._complete.mark(found.position, moment)
            self._last_contact = max(self._last_contact, moment)  # it was written after that

    def _load(self) -> "_Loaded | None":
        """Loads all rows, in the view's thread. Reads in portions, to limit the rows that are in
        memory both encoded and decoded."""
        held = HeldRows()
        with self._store.reading(VIEWED) as (found, portions):
            if found is None:
                return None
            for rows in portions:
                held.put(rows, found.position)
            held.put([], found.position)  # sets the position even without rows
        held.twin_columns()
        return _Loaded(found, held)

    def _replace_rows(self, reason: str, loaded: "_Loaded | None") -> None:
        metrics.VIEW_RELOADS.labels(reason=reason).inc()
        if reason == "digest":
            metrics.DIGEST_MISMATCHES.inc()
        if reason != "boot":
            log.warning("view_reloaded", why=reason, position=self.position)
        if loaded is not None:
            is_older = loaded.found.position < self._held.position
            if is_older or loaded.found.incarnation != self._incarnation:
                self._complete.forget()
            self._complete.leave(self._held.position)
            self._incarnation = loaded.found.incarnation
            self._held = loaded.held
            self._mark_complete()  # by a heartbeat that arrived meanwhile

    def _catch_up_with(self, found: Checkpoint | None, rows: list[Row] | None) -> None:
        if found is None:
            return
        if rows is None:
            self._request_reload("trimmed")  # deletions since this position were trimmed
            return
        if found.incarnation != self._incarnation or found.position < self._held.position:
            self._request_reload("another database")
            return
        self._complete.leave(self._held.position)
        self._held.put(rows, found.position)

    def _show_dropping(self, is_dropping: bool) -> None:
        """Until the rows are read after a pause, or are needed and cannot be read."""
        self._is_dropping = is_dropping
        metrics.VIEW_PAUSED.set(is_dropping)

    def _notify(self) -> None:
        if self.is_ready:
            metrics.POSITION.set(self.position)
        if not self._reload:  # otherwise the rows may be wrong ones
            self._complete.advance(self._includes)
        self._moves += 1
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _seconds_since(moment: float) -> float:
    return time.monotonic() - moment


def behind_ms_of(beat: Heartbeat) -> int:
    """Of an older projector, the age of its newest commit while events are waiting."""
    if beat.behind_ms >= 0:
        return beat.behind_ms
    return beat.lag_ms if beat.lag else 0


class _Loaded(NamedTuple):
    found: Checkpoint
    held: HeldRows
