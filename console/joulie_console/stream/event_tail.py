"""What is told as it happens: one tail of the decision log and of the plans, for all who listen.

Nobody has a queue here. A listener keeps two numbers, how far he has heard of either log, and reads
from there when he is called: who is slow costs no memory, and who comes back names his numbers.
"""

import asyncio
import contextlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import msgspec

from joulie_bus.errors import StoreError
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.tasks import rung
from joulie_bus.streams.log import Log, Reader
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_console.schema.responses import DecisionBrief
from joulie_console.views.past import Past, Placed
from joulie_console.views.plan_text import PlanLine, plan_line
from joulie_projections.history.history import StoredEntry

POLL_S = 0.5  # while the bus is silent, the database is asked so often
IDLE_S = 2.0  # and so often while nobody listens
GATHER_S = 0.05  # so much that comes together is read together
PAGE = 500
DECISIONS_KEPT = 5_000  # in memory; older ones come from the database
PLANS_KEPT = 5_000  # likewise from the stream
PIECES = 64
log = get_logger("console")
_json = msgspec.json.Encoder().encode


class DecisionLine(NamedTuple):
    number: int  # its entry in the decision log
    brief: DecisionBrief
    nodes: frozenset[str]
    data: bytes


class Cursor(NamedTuple):
    """How far somebody has heard: the facts, and the decision log."""

    position: int
    entry: int

    def __str__(self) -> str:
        return f"{self.position}.{self.entry}"


def cursor_of(text: str) -> Cursor | None:
    position, dot, entry = text.strip().partition(".")
    plain = all(part.isascii() and part.isdigit() and len(part) <= 15 for part in (position, entry))
    return Cursor(int(position), int(entry)) if dot and plain else None


class Journal:
    """`follow` runs for as long as the console does; everything else reads."""

    def __init__(self, bus: Log, past: Past, named: Callable[[], dict[int, str]]) -> None:
        self._bus = bus
        self._named = named
        self._past = past
        self._decisions: list[DecisionLine] = []
        self._plans: list[PlanLine] = []
        self._unplaced: deque[Record] = deque()  # plans whose position is not committed yet
        self._placed: deque[Placed] = deque()
        self._mapped_to = 0
        self._taken = 0  # of the stream of plans
        self._pieces: dict[tuple[int, int, int], bytes] = {}
        self._turn = asyncio.Event()
        self.bell = asyncio.Event()
        self.names: dict[int, str] = {}  # ordinals are never given to another node
        self.entry = 0
        self.decided_at = 0  # ns, of the newest answer
        self._forgets = False
        self.plans_gone = 0  # events that have left the stream
        self._listeners = 0
        self.trouble = ""  # why the database cannot be read, if so
        self.is_ready = False
        self.is_closing = False

    @property
    def cursor(self) -> Cursor:
        """Where who begins now begins."""
        return Cursor(self._plans[-1].number if self._plans else self._mapped_to, self.entry)

    @property
    def turn(self) -> asyncio.Event:
        """Set when there is more than there was when you took it."""
        return self._turn

    def wake(self) -> None:
        turned, self._turn = self._turn, asyncio.Event()
        turned.set()

    @contextlib.contextmanager
    def heard(self) -> Generator[None, None, None]:
        """While somebody listens, decisions are told as they come."""
        self._listeners += 1
        self.bell.set()
        try:
            yield
        finally:
            self._listeners -= 1

    def close(self) -> None:
        """Tells all listeners to go, and to come back to the next life."""
        self.is_closing = True
        self.wake()

    @property
    def forgets_plans(self) -> bool:
        """Older ones than the first here exist."""
        return self._forgets

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
        """From memory if they are here, else from the database; without a hole either way."""
        if entry >= self.entry:
            return []
        first = self._decisions[0].number if self._decisions else self.entry + 1
        if entry + 1 >= first:
            at = entry + 1 - first
            return self._decisions[at : at + limit]
        entries = await self._past.entries_after(entry, min(limit, first - 1 - entry))
        return [self._line(logged) for logged in entries]

    def piece(self, position: int, lines: Sequence[DecisionLine]) -> bytes:
        """Most listeners stand at the same place: what they hear is put together once."""
        key = (position, lines[0].number, lines[-1].number)
        if key not in self._pieces:
            if len(self._pieces) >= PIECES:
                self._pieces.clear()
            self._pieces[key] = b"".join(decision_frame(line, position) for line in lines)
        return self._pieces[key]

    # --- following ----------------------------------------------------------------------------

    async def follow(self) -> None:
        """For ever; raises when the stream of plans is not what it was."""
        await self._begin()
        state = await self._bus.state(Stream.PLAN)
        after = max(0, state.first - 1, state.last - PLANS_KEPT)
        self._forgets, self.plans_gone = after > 0, state.first - 1
        async with self._bus.reading(Stream.PLAN, after, state.created, self.bell) as reader:
            await self._place_old(after + 1)
            self._taken = after
            while True:
                await self._look(reader)
                if self._taken >= state.last and not self.trouble:
                    self.is_ready = True  # what was there when we came is known
                await rung(self.bell, POLL_S if self._listeners else IDLE_S, GATHER_S)

    async def _begin(self) -> None:
        while True:
            try:
                await self._pass_over_decisions()
                return
            except StoreError as error:
                self._trouble(str(error))
                await asyncio.sleep(POLL_S)

    async def _place_old(self, first: int) -> None:
        found = await self._past.placed_plans(first)
        self._placed.extend(found.placed)
        self._mapped_to = found.mapped_to

    async def _look(self, reader: Reader) -> None:
        try:
            moved = await self._read_decisions()
            moved = await self._read_plans(reader) or moved
        except StoreError as error:
            self._trouble(str(error))
            return
        self.trouble = ""
        if moved:
            self.wake()

    def _trouble(self, what: str) -> None:
        if not self.trouble:
            log.warning("database_away", why=what)
        self.trouble = what

    async def _pass_over_decisions(self) -> bool:
        """To the newest one; who wants those between reads them from the database."""
        newest = await self._past.newest_after(self.entry)
        if newest is None:
            return False
        self.names.update(self._named())
        self._decisions.clear()
        self.entry = newest.pos
        self.decided_at = newest.decided_at
        return True

    async def _read_decisions(self) -> bool:
        """Nearly all that this takes goes into telling, so nothing is told to nobody."""
        if not self._listeners:
            return await self._pass_over_decisions()
        moved = False
        while entries := await self._past.entries_after(self.entry, PAGE):
            self.names.update(self._named())
            for logged in entries:
                self._past.remember(logged)
                self._decisions.append(self._line(logged))
            self.entry = entries[-1].pos
            self.decided_at = entries[-1].decided_at
            moved = True
        if len(self._decisions) > 2 * DECISIONS_KEPT:
            del self._decisions[:-DECISIONS_KEPT]
        return moved

    def _line(self, logged: StoredEntry) -> DecisionLine:
        told = self._past.told(logged, self.names)
        return DecisionLine(logged.pos, told.brief, told.nodes, _json(told.brief))

    async def _read_plans(self, reader: Reader) -> bool:
        self._unplaced.extend(reader.take(10_000))
        if not self._unplaced:
            return False
        self._taken = self._unplaced[-1].sequence
        found = await self._past.placed_after(self._mapped_to)
        self._placed.extend(found.placed)
        self._mapped_to = found.mapped_to
        before = len(self._plans)
        while self._unplaced and self._placed:
            self._put(self._unplaced[0], self._placed[0])
        if len(self._plans) > 2 * PLANS_KEPT:
            del self._plans[:-PLANS_KEPT]
            self._forgets = True
        return len(self._plans) != before

    def _put(self, record: Record, place: Placed) -> None:
        """Streams and places come in the same order; either may begin before the other."""
        if record.sequence < place.first:
            self._unplaced.popleft()
            self._forgets = True
        elif record.sequence > place.last:
            self._placed.popleft()
        else:
            self._unplaced.popleft()
            position = place.position + record.sequence - place.first
            if (line := plan_line(record, position)) is not None:
                self._plans.append(line)


def decision_frame(line: DecisionLine, position: int) -> bytes:
    return f"event: decision\nid: {position}.{line.number}\ndata: ".encode() + line.data + b"\n\n"
