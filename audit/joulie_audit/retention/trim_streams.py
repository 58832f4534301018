"""Purges of the streams what lies behind a cut, and what no reader will ask a stream for again."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from joulie_bus.errors import NotTrimmed, PurgeDenied
from joulie_bus.runtime.tasks import rung
from joulie_bus.streams.log import Log
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream, Subjects
from joulie_projections.decision_log.entry import entry_of
from joulie_projections.fold.commit import Cut
from joulie_projections.history.history import History

PATIENCE_S = 10.0


class PurgingLog(Log, Protocol):
    async def purge(self, stream: Stream, before: int) -> None: ...


class Bound(NamedTuple):
    """Messages of a stream with a lower sequence may go."""

    stream: Stream
    created: str  # which stream of that name
    before: int


class Purged(NamedTuple):
    messages: dict[str, int]
    denied: list[str]  # streams of an older version, and what to do about them


async def purge_to(bus: PurgingLog, bounds: Sequence[Bound]) -> Purged:
    """Once more, if that was done before."""
    done = Purged({}, [])
    for stream, created, bound in bounds:
        state = await bus.state(stream)
        before = min(bound, state.last)  # an empty stream would begin anew
        if created not in ("", state.created) or before <= state.first:
            continue
        try:
            await bus.purge(stream, before)
        except PurgeDenied as error:
            done.denied.append(str(error))
        else:
            done.messages[str(stream)] = before - state.first
    return done


async def bounds_of(bus: Log, subjects: Subjects, history: History, cut: Cut) -> list[Bound]:
    """The newest message that was read of each stream stays: its reader finds its place by it.

    Heads all stay: auditors hold the log against them, whatever was cut.
    """
    plan = await bus.last(Stream.PLAN, subjects.plan_meta)
    found = list(_of_facts(history, cut, plan.sequence if plan else 0))
    read = history.decisions_read()
    decided = await _newest_cut(bus, history, cut, read.sequence)
    found.append(Bound(Stream.DEC, read.created, min(decided + 1, read.sequence)))
    return found


def _of_facts(history: History, cut: Cut, plan: int) -> Iterator[Bound]:
    """Of plans the newest one stays too: operators plan upon it. A card whose last claim has gone
    is as one that nobody has written about, which is what the broker then compares with.
    """
    checkpoint = history.checkpoint()
    for stream in MERGE_ORDER:
        at = cut.inputs.get(stream)
        read = checkpoint.inputs.get(stream) if checkpoint else None
        if at is None or read is None or at.created not in ("", read.created):
            continue
        before = min(at.sequence + 1, read.sequence)
        yield Bound(stream, read.created, min(before, plan) if stream is Stream.PLAN else before)


async def _newest_cut(bus: Log, history: History, cut: Cut, read: int) -> int:
    """The sequence of the last entry in front of the cut, or one shortly before it; 0: not there.

    Each entry behind the cut took a message at least, so it cannot lie beyond the first guess.
    """
    first = (await bus.state(Stream.DEC)).first
    guess = read - (history.tip() - cut.pos)
    while guess >= first:
        found = entry_of(await _message(bus, guess))
        at = history.position_of(found.fields.event_id)
        if at is None or at <= cut.pos:
            return guess
        guess -= at - cut.pos
    return 0


async def _message(bus: Log, sequence: int) -> Record:
    return (await _read(bus, Stream.DEC, sequence, 1))[0]


async def newest(bus: Log, stream: Stream, count: int) -> list[Record]:
    """As many as there are, up to that."""
    state = await bus.state(stream)
    first = max(state.first, state.last - count + 1)
    return await _read(bus, stream, first, state.last - first + 1) if state.last else []


async def _read(bus: Log, stream: Stream, first: int, count: int) -> list[Record]:
    bell, found = asyncio.Event(), list[Record]()
    async with bus.reading(stream, first - 1, bell=bell) as reader:
        while len(found) < count:
            taken = reader.take(count - len(found))
            found.extend(taken)
            if not taken and not await rung(bell, PATIENCE_S):
                raise NotTrimmed(
                    f"{stream} does not hand over {first + len(found)}: nothing came for "
                    f"{PATIENCE_S:g} s. What was done before stands; run it again."
                )
    return found
