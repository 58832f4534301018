"""The tail of the decision log and of the plans, shared by all clients of the stream.

There are no queues per client. Each client has a cursor with its position in both logs and reads
from there when it is woken. A slow client uses no memory, and a returning client sends its cursor.
"""

import asyncio
import contextlib
import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import NamedTuple

import msgspec

from joulie_answers.readers.energy import EnergyReader
from joulie_answers.readers.history import HistoryReader, PlacedRange
from joulie_answers.schema.responses import DecisionBrief
from joulie_answers.views.decision_text import UNLISTED, DescribedEntry
from joulie_answers.views.plan_text import PlanLine, plan_line
from joulie_bus.core.times import MS
from joulie_bus.errors import StoreError
from joulie_bus.log.answered import until_answered
from joulie_bus.log.protocol import Log, Reader
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

LEDGER_S = 2.0  # between two reads of how far the ledger is behind
LEDGER_KEPT_S = 3 * LEDGER_S  # after a read that is older, the ledger may have caught up
HEADS_S = 15.0  # between two reads of what is not signed: a minute of it is a warning
POLL_S = 0.5  # between two reads of the database while no heartbeat arrives
IDLE_S = 2.0  # likewise while the stream has no clients
GATHER_S = 0.05  # wait after a heartbeat, to read several commits at once
PAGE = 500
DECISIONS_KEPT = 5_000  # in memory; older ones are read from the database
PLANS_KEPT = 5_000  # likewise; older ones are read from the stream of plans
MAX_ENCODED = 64
NS = 10**9
log = get_logger("console")
_json = msgspec.json.Encoder().encode


class DecisionLine(NamedTuple):
    number: int  # its entry in the decision log
    brief: DecisionBrief
    nodes: frozenset[str]
    data: bytes

    @property
    def is_listed(self) -> bool:
        """Whether a client gets it that asked for no kind of entry."""
        return self.brief.verb not in UNLISTED


class Cursor(NamedTuple):
    """How far a client has received the facts and the decision log."""

    position: int
    entry: int

    def __str__(self) -> str:
        return f"{self.position}.{self.entry}"


def cursor_of(text: str) -> Cursor | None:
    position, dot, entry = text.strip().partition(".")
    plain = all(part.isascii() and part.isdigit() and len(part) <= 15 for part in (position, entry))
    return Cursor(int(position), int(entry)) if dot and plain else None


class EventTail:
    """`follow` runs for as long as the console does; all other methods read."""

    def __init__(self, bus: Log, history: HistoryReader, energy: EnergyReader) -> None:
        self._bus = bus
        self._history, self._energy = history, energy
        self._decisions: list[DecisionLine] = []
        self._plans: list[PlanLine] = []
        self._unplaced: deque[Record] = deque()  # plans whose position is not committed yet
        self._placed: deque[PlacedRange] = deque()
        self._mapped_to = 0
        self._plans_read = 0  # the last sequence that was read from the stream of plans
        self._encoded: dict[tuple[int, int, int], bytes] = {}
        self._changed = asyncio.Event()
        self.wakeup = asyncio.Event()
        self.entry = 0
        self.decided_at = 0  # ns, of the newest decision
        self.decisions_read_at = -math.inf  # by the monotonic clock: later ones may not be known
        self._ledger_s: float | None = 0.0
        self._ledger_read_at = -math.inf
        self._heads_read_at = -math.inf
        self.unsigned_s: float | None = None  # the age of the first entry without a signed head
        self._has_dropped_plans = False
        self.plans_gone = 0  # events that have left the stream
        self._clients = 0
        self.database_error = ""  # why the database cannot be read; empty if it can
        self.is_ready = False
        self.is_closing = False

    @property
    def cursor(self) -> Cursor:
        """The cursor of a client that starts now."""
        return Cursor(self._plans[-1].number if self._plans else self._mapped_to, self.entry)

    @property
    def ledger_s(self) -> float | None:
        """How long ago the oldest fact was committed that the ledger lacks; 0 if it lacks none, or
        if that was not read lately. None: the ledger cannot be read."""
        is_recent = time.monotonic() - self._ledger_read_at <= LEDGER_KEPT_S
        return self._ledger_s if is_recent else 0.0

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change. Take it before reading, so that no change is missed."""
        return self._changed

    def wake(self) -> None:
        previous, self._changed = self._changed, asyncio.Event()
        previous.set()

    @contextlib.contextmanager
    def subscribed(self) -> Generator[None, None, None]:
        """Counts one client: with at least one, new decisions are read and encoded."""
        self._clients += 1
        self.wakeup.set()
        try:
            yield
        finally:
            self._clients -= 1

    @property
    def has_clients(self) -> bool:
        return self._clients > 0

    def close(self) -> None:
        """Ends all streams. Their clients reconnect to the next console."""
        self.is_closing = True
        self.wake()

    @property
    def has_dropped_plans(self) -> bool:
        """Whether plans exist that are older than the first one in memory."""
        return self._has_dropped_plans

    @property
    def first_plan(self) -> int:
        return self._plans[0].number if self._plans else self._mapped_to + 1

    def plans_after(self, position: int, limit: int = PAGE) -> Sequence[PlanLine]:
        at = bisect_right(self._plans, position, key=lambda line: line.number)
        return self._plans[at : at + limit]

    def plans_before(self, position: int) -> list[PlanLine]:
        """Oldest first."""
        return self._plans[: bisect_right(self._plans, position - 1, key=lambda line: line.number)]

    async def decisions_after(self, entry: int, limit: int = PAGE) -> Sequence[DecisionLine]:
        """From memory if they are there, else from the database; without gaps in both cases."""
        if entry >= self.entry:
            return []
        first = self._decisions[0].number if self._decisions else self.entry + 1
        if entry + 1 >= first:
            at = entry + 1 - first
            return self._decisions[at : at + limit]
        entries = await self._history.entries_after(entry, min(limit, first - 1 - entry))
        return list(map(_line, entries))

    def encoded_events(self, position: int, lines: Sequence[DecisionLine]) -> bytes:
        """The events of these lines. Most clients have the same cursor, so this is cached."""
        key = (position, lines[0].number, lines[-1].number)
        if key not in self._encoded:
            if len(self._encoded) >= MAX_ENCODED:
                self._encoded.clear()
            listed = (line for line in lines if line.is_listed)
            self._encoded[key] = b"".join(decision_frame(line, position) for line in listed)
        return self._encoded[key]

    # --- following ----------------------------------------------------------------------------

    async def follow(self) -> None:
        """Runs until it is cancelled. Raises if the stream of plans was replaced."""
        await self._until_read(self._skip_decisions)
        state = await until_answered(lambda: self._bus.state(Stream.PLAN))
        after = max(0, state.first - 1, state.last - PLANS_KEPT)
        self._has_dropped_plans, self.plans_gone = after > 0, max(0, state.first - 1)
        async with self._bus.reading(Stream.PLAN, after, state.created, self.wakeup) as reader:
            await self._until_read(lambda: self._load_positions(after + 1))
            self._plans_read = after
            while True:
                await self._poll(reader)
                if self._plans_read >= state.last and not self.database_error:
                    self.is_ready = True  # all that existed at the start was read
                await wait_and_clear(self.wakeup, POLL_S if self._clients else IDLE_S, GATHER_S)

    async def _until_read(self, read: Callable[[], Awaitable[object]]) -> None:
        """Reads again until the database answers."""
        while True:
            try:
                await read()
                return
            except StoreError as error:
                self._report_error(str(error))
                await asyncio.sleep(POLL_S)

    async def _load_positions(self, first: int) -> None:
        found = await self._history.plan_positions(first)
        self._placed.extend(found.placed)
        self._mapped_to = found.mapped_to

    async def _poll(self, reader: Reader) -> None:
        began = time.monotonic()
        try:
            moved = await self._read_decisions()
            self.decisions_read_at = began
            moved = await self._read_plans(reader) or moved
            await self._read_lags()
        except StoreError as error:
            self._report_error(str(error))
            return
        self.database_error = ""
        if moved:
            self.wake()

    def _report_error(self, what: str) -> None:
        if not self.database_error:
            log.warning("database_unavailable", why=what)
        self.database_error = what

    async def _skip_decisions(self) -> bool:
        """Moves to the newest decision. Skipped ones are read from the database on demand."""
        newest = await self._history.newest_after(self.entry)
        if newest is None:
            return False
        self._decisions.clear()
        self.entry = newest.pos
        self.decided_at = newest.decided_at
        return True

    async def _read_decisions(self) -> bool:
        """Encoding is nearly all of the cost, so without clients decisions are skipped."""
        if not self._clients:
            return await self._skip_decisions()
        moved = False
        while entries := await self._history.entries_after(self.entry, PAGE):
            self._decisions.extend(map(_line, entries))
            self.entry = entries[-1].brief.entry
            self.decided_at = entries[-1].brief.at_ms * MS
            moved = True
        if len(self._decisions) > 2 * DECISIONS_KEPT:
            del self._decisions[:-DECISIONS_KEPT]
        return moved

    async def _read_lags(self) -> None:
        now = time.monotonic()
        if now - self._ledger_read_at >= LEDGER_S:
            self._ledger_s = await self._energy.behind_s()
            self._ledger_read_at = now
        if now - self._heads_read_at >= HEADS_S:
            since = await self._history.run(lambda history: history.unsigned_since())
            self.unsigned_s = None if since is None else max(0, time.time_ns() - since) / NS
            self._heads_read_at = now

    async def _read_plans(self, reader: Reader) -> bool:
        self._unplaced.extend(reader.take(10_000))
        if not self._unplaced:
            return False
        self._plans_read = self._unplaced[-1].sequence
        found = await self._history.placed_after(self._mapped_to)
        self._placed.extend(found.placed)
        self._mapped_to = found.mapped_to
        before = len(self._plans)
        while self._unplaced and self._placed:
            self._place_next(self._unplaced[0], self._placed[0])
        if len(self._plans) > 2 * PLANS_KEPT:
            del self._plans[:-PLANS_KEPT]
            self._has_dropped_plans = True
        return len(self._plans) != before

    def _place_next(self, record: Record, place: PlacedRange) -> None:
        """Messages and positions come in the same order; either may begin before the other."""
        if record.sequence < place.first:
            self._unplaced.popleft()
            self._has_dropped_plans = True
        elif record.sequence > place.last:
            self._placed.popleft()
        else:
            self._unplaced.popleft()
            position = place.position + record.sequence - place.first
            if (line := plan_line(record, position)) is not None:
                self._plans.append(line)


def _line(found: DescribedEntry) -> DecisionLine:
    return DecisionLine(found.brief.entry, found.brief, found.nodes(), _json(found.brief))


def decision_frame(line: DecisionLine, position: int) -> bytes:
    return f"event: decision\nid: {position}.{line.number}\ndata: ".encode() + line.data + b"\n\n"
