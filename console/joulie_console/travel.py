"""Back in time: the world as it was believed at any position, folded again from the facts.

The interface is `Travel.to(position)`. What it costs is the distance from the nearest keyframe; the
worlds that were passed on the way are kept as keyframes, a bounded number of them. At the end the
digest of what was folded is compared with the one that the projector committed.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Container, Sequence
from typing import NamedTuple

from joulie_bus.errors import StreamGap, StreamReplaced, TooFarBack
from joulie_bus.log import Log, Reader
from joulie_bus.records import Record
from joulie_bus.subjects import Stream
from joulie_console.past import Past
from joulie_console.picture import Moment
from joulie_projections.board import Board
from joulie_projections.draft import Draft
from joulie_projections.manifest import Manifest, Range
from joulie_projections.rows import Row, digests_of, encode, state_digest, tables_of
from joulie_projections.sequence import fold
from joulie_projections.world import World

KEYFRAME_EVENTS = 25_000
KEYFRAMES = 12
CACHED = 4
AT_ONCE = 500  # facts folded between two chances for others
PATIENCE_S = 10.0
LONGEST_S = 60.0


class Seen(NamedTuple):
    """`proved`: the fold gives the state that was committed there."""

    moment: Moment
    proved: bool


class Travel:
    """One journey at a time: they are heavy, and who drags a slider wants only the last."""

    def __init__(self, bus: Log, past: Past) -> None:
        self._bus = bus
        self._past = past
        self._keyframes: dict[int, World] = {}
        self._cached: dict[int, Seen] = {}
        self._alone = asyncio.Lock()

    async def to(self, position: int) -> Seen:
        """Raises TooFarBack where facts are missing."""
        async with self._alone:
            if position not in self._cached:
                self._cached[position] = await self._go(position)
            while len(self._cached) > CACHED:
                self._cached.pop(next(iter(self._cached)))
            return self._cached[position]

    async def _go(self, position: int) -> Seen:
        start = max((at for at in self._keyframes if at <= position), default=0)
        world = copied(self._keyframes.get(start, World()))
        aside = await self._past.ask(lambda history: history.set_aside())
        journey = _Journey(world, start, position, aside)
        try:
            async with asyncio.timeout(LONGEST_S), _Facts.on(self._bus) as facts:
                while journey.here < position:
                    manifests = await self._past.manifests_to(journey.here, position)
                    if not manifests:
                        raise TooFarBack(position, "no batch of that time is in the database.")
                    for manifest in manifests:
                        await self._pass(journey, manifest, facts)
        except (StreamGap, StreamReplaced) as error:
            raise TooFarBack(position, str(error)) from error
        except TimeoutError as error:
            why = f"it takes longer than {LONGEST_S:.0f} s from the nearest known state."
            raise TooFarBack(position, why) from error
        board = Board.believing(world)
        moment = Moment(position, journey.committed_at, 0, world, board)
        return Seen(moment, journey.proved)

    async def _pass(self, journey: "_Journey", manifest: Manifest, facts: "_Facts") -> None:
        records = await facts.read(manifest.ranges)
        reached = min(manifest.p_to, journey.goal)
        await _fold_gently(
            journey.world,
            records[: reached - manifest.p_from + 1],
            manifest.p_from - 1,
            journey.aside,
        )
        journey.here, journey.committed_at = reached, manifest.committed_at
        due = reached - journey.kept >= KEYFRAME_EVENTS
        if reached == manifest.p_to and (due or reached == journey.goal):
            journey.proved = await asyncio.to_thread(_agrees, journey.world, manifest.state_digest)
            if due and journey.proved:
                journey.kept = reached
                self._keep(reached, journey.world)

    def _keep(self, position: int, world: World) -> None:
        """Thinned where they are densest, so that some of every time stay."""
        self._keyframes[position] = copied(world)
        if len(self._keyframes) > KEYFRAMES:
            at = sorted(self._keyframes)
            gaps = {here: after - before for before, here, after in zip(at, at[1:], at[2:])}  # noqa: B905
            self._keyframes.pop(min(gaps, key=lambda here: gaps[here]))


class _Journey:
    def __init__(self, world: World, start: int, goal: int, aside: Container[int]) -> None:
        self.world = world
        self.aside = aside  # positions whose messages were not folded then, either
        self.here = self.kept = start
        self.goal = goal
        self.committed_at = 0
        self.proved = False


class _Facts:
    """The streams, each read forward once, from where a manifest first asks for it."""

    def __init__(self, bus: Log, stack: contextlib.AsyncExitStack) -> None:
        self._bus = bus
        self._stack = stack
        self._bell = asyncio.Event()
        self._readers: dict[Stream, Reader] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, bus: Log) -> AsyncGenerator["_Facts", None]:
        async with contextlib.AsyncExitStack() as stack:
            yield cls(bus, stack)

    async def read(self, ranges: Sequence[Range]) -> list[Record]:
        records: list[Record] = []
        for wanted in ranges:
            if wanted.stream not in self._readers:
                reading = self._bus.reading(wanted.stream, wanted.first - 1, bell=self._bell)
                self._readers[wanted.stream] = await self._stack.enter_async_context(reading)
            count = wanted.last - wanted.first + 1
            records.extend(await self._take(self._readers[wanted.stream], count))
        return records

    async def _take(self, reader: Reader, count: int) -> list[Record]:
        taken: list[Record] = []
        while len(taken) < count:
            self._bell.clear()
            taken.extend(reader.take(count - len(taken)))
            if len(taken) < count and not len(reader):
                await asyncio.wait_for(self._bell.wait(), PATIENCE_S)
        return taken


async def _fold_gently(
    world: World, records: Sequence[Record], position: int, aside: Container[int]
) -> None:
    for at in range(0, len(records), AT_ONCE):
        draft = Draft(world)
        fold(draft, records[at : at + AT_ONCE], position + at, aside)
        draft.commit()
        await asyncio.sleep(0)


def _agrees(world: World, digest: bytes) -> bool:
    rows = (
        Row(table, key, encode(state))
        for table, states in tables_of(world).items()
        for key, state in states.items()
    )
    return state_digest(digests_of(rows)) == digest


def copied(world: World) -> World:
    """The states are frozen; only the tables are copied."""
    copy = World()
    for table, states in tables_of(world).items():
        tables_of(copy)[table].update(states)
    return copy
