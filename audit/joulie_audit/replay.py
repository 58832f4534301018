"""Folds the recorded ranges again and recomputes every decision on the way.

Reads the facts from the streams, not the rows: what the rows claim is compared with what the facts
give. One pass: at each position that decisions looked at, they are taken again on the spot.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import NamedTuple

from joulie_audit.recompute import Mismatch, again, compare
from joulie_bus import codec
from joulie_bus.errors import Undecodable
from joulie_bus.events import Decision, FilterDecided, PrioritizeDecided, SettingsDeclared
from joulie_bus.log import Log, Reader
from joulie_bus.records import Record
from joulie_bus.subjects import MERGE_ORDER, Stream
from joulie_extender.decide import weights_of
from joulie_extender.scoring import Weights
from joulie_projections.board import Board
from joulie_projections.cards import CardState
from joulie_projections.draft import Draft
from joulie_projections.history import History
from joulie_projections.manifest import Manifest, Range, merkle_root
from joulie_projections.rows import Digests, changed_rows, no_rows, state_digest
from joulie_projections.sequence import fold
from joulie_projections.world import NodeState, World

KEPT = 20  # mismatches told in full; all are counted
PATIENCE_S = 10.0  # for the broker to hand over the next messages
STATE = "state-differs"


class Replayed(NamedTuple):
    events: int
    decisions: int
    mismatches: int
    seconds: float
    told: list[Mismatch]


class Answer(NamedTuple):
    entry: int
    view: int
    decision: Decision


class _Facts:
    """The streams, read forward once, in the order that the manifests ask for."""

    def __init__(self, readers: dict[Stream, Reader], bell: asyncio.Event) -> None:
        self._readers = readers
        self._bell = bell

    @classmethod
    @contextlib.asynccontextmanager
    async def on(cls, bus: Log) -> AsyncGenerator["_Facts", None]:
        bell = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            readers = {
                stream: await stack.enter_async_context(bus.reading(stream, 0, bell=bell))
                for stream in MERGE_ORDER
            }
            yield cls(readers, bell)

    async def read(self, ranges: Sequence[Range]) -> list[Record]:
        records: list[Record] = []
        for wanted in ranges:
            count = wanted.last - wanted.first + 1
            part = await self._take(self._readers[wanted.stream], count)
            records.extend(part)
        return records

    async def _take(self, reader: Reader, count: int) -> list[Record]:
        taken: list[Record] = []
        while len(taken) < count:
            self._bell.clear()
            taken.extend(reader.take(count - len(taken)))
            if len(taken) < count and not len(reader):
                await asyncio.wait_for(self._bell.wait(), PATIENCE_S)
        return taken


class _Again:
    """The world as it was, position by position."""

    def __init__(self, settings: dict[str, Weights]) -> None:
        self.world = World()
        self.digests: Digests = no_rows()
        self.position = 0
        self.events = self.decisions = self.mismatches = 0
        self.told: list[Mismatch] = []
        self._settings = settings
        self._board = Board.empty()
        self._dirty: dict[str, NodeState | None] = {}
        self._dirty_cards: dict[str, CardState | None] = {}

    def advance(self, records: Sequence[Record], manifest: Manifest) -> None:
        draft = Draft(self.world)
        fold(draft, records, self.position)
        _, self.digests = changed_rows(draft.changed(), self.digests)
        self._dirty.update(draft.nodes.changes)
        self._dirty_cards.update(draft.gpus.changes)
        draft.commit()
        self.position = manifest.p_to
        self.events += len(records)
        if merkle_root([record.data for record in records]) != manifest.merkle_root:
            span = f"{manifest.p_from} to {manifest.p_to}"
            self.miss(Mismatch(self.position, STATE, f"other facts at {span}"))
        if state_digest(self.digests) != manifest.state_digest:
            self.miss(Mismatch(self.position, STATE, f"another state at {self.position}"))

    def compare_rows(self, history: History) -> None:
        """What readers boot from must be what the facts give."""
        checkpoint, rows = history.checkpoint(), history.digests()
        if checkpoint is None or checkpoint.position != self.position or rows == self.digests:
            return
        tables = ", ".join(table for table in rows if rows[table] != self.digests[table])
        what = f"the rows of {tables} are not the folded ones"
        self.miss(Mismatch(self.position, STATE, what))

    def decide(self, logged: Answer) -> None:
        self.decisions += 1
        weights = self._settings.get(logged.decision.basis.settings)
        if weights is None:
            self.miss(Mismatch(logged.entry, "input-missing", "its settings are not in the log"))
            return
        self._board = self._board.following(self.world, self._dirty, self._dirty_cards)
        self._dirty, self._dirty_cards = {}, {}
        try:
            now = again(logged.decision, self._board, weights)
        except (KeyError, StopIteration):
            self.miss(Mismatch(logged.entry, "input-missing", "a candidate was not on the board"))
            return
        if (found := compare(logged.entry, logged.decision, now)) is not None:
            self.miss(found)

    def miss(self, mismatch: Mismatch) -> None:
        self.mismatches += 1
        if len(self.told) < KEPT:
            self.told.append(mismatch)


async def replay(history: History, bus: Log) -> Replayed:
    started = time.perf_counter()
    past = _Again(_settings(history))
    logged = _Queue(_answers(history))
    for found in logged.up_to(0):
        past.decide(found)
    async with _Facts.on(bus) as facts:
        for manifest in history.manifests():
            records = await facts.read(manifest.ranges)
            past.advance(records, manifest)
            for found in logged.up_to(manifest.p_to):
                past.decide(found)
    for found in logged.rest():
        past.decisions += 1
        what = f"its view {found.view} is beyond the last position {past.position}"
        past.miss(Mismatch(found.entry, "input-missing", what))
    past.compare_rows(history)
    seconds = time.perf_counter() - started
    return Replayed(past.events, past.decisions, past.mismatches, seconds, past.told)


class _Queue:
    """Decisions in the order of the positions that they looked at."""

    def __init__(self, logged: Iterator[Answer]) -> None:
        self._logged = logged
        self._next = next(logged, None)

    def up_to(self, position: int) -> Iterator[Answer]:
        while self._next is not None and self._next.view <= position:
            yield self._next
            self._next = next(self._logged, None)

    def rest(self) -> Iterator[Answer]:
        while self._next is not None:
            yield self._next
            self._next = next(self._logged, None)


def _settings(history: History) -> dict[str, Weights]:
    declared = (_read(entry.body) for entry in history.declarations())
    return {d.settings: weights_of(d) for d in declared if isinstance(d, SettingsDeclared)}


def _answers(history: History) -> Iterator[Answer]:
    for entry in history.answers_by_view():
        event = _read(entry.body)
        if isinstance(event, FilterDecided | PrioritizeDecided):
            yield Answer(entry.pos, entry.view_position, event)


def _read(body: bytes) -> object:
    try:
        return codec.read(codec.open_envelope(body, "decision"), "decision")
    except Undecodable:
        return None  # `verify` names it; there is nothing to compute from it
