"""Purges the messages before a cut that no reader will request from a stream again."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from joulie_audit.archive.parts import Archive, newest_read
from joulie_bus.errors import NotTrimmed, PurgeDenied
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream, Subjects
from joulie_projections.chain.entry import entry_of
from joulie_projections.fold.commit import Cut
from joulie_projections.history.history import History

PATIENCE_S = 10.0


class PurgingLog(Log, Protocol):
    async def purge(self, stream: Stream, before: int) -> None: ...


class PurgeBound(NamedTuple):
    """Messages of a stream with a sequence below `before` may be purged."""

    stream: Stream
    created: str  # identity of the stream
    before: int


class Purged(NamedTuple):
    messages: dict[str, int]
    denied: list[str]  # streams of an older version, with the remedy


async def purge_to(bus: PurgingLog, bounds: Sequence[PurgeBound]) -> Purged:
    """Purges each stream up to its bound. Idempotent."""
    done = Purged({}, [])
    for stream, created, bound in bounds:
        state = await bus.state(stream)
        before = min(bound, state.last)  # an empty stream would restart its sequence
        if created not in ("", state.created) or before <= state.first:
            continue
        try:
            await bus.purge(stream, before)
        except PurgeDenied as error:
            done.denied.append(str(error))
        else:
            done.messages[str(stream)] = before - state.first
    return done


def decisions_continued(archive: Archive) -> int:
    """The message of the stream of decisions after which a restored archive continues; 0 if it does
    not know one yet.

    A part knows how far the stream was read when it was written. The log had entries then that were
    not signed, so a part is of use when a later one holds those.
    """
    last = archive.log[-1][1].last if archive.log else 0
    parts = (archive.read_log(place, part) for place, part in reversed(archive.log))
    newest = newest_read((read for part in parts for read in part.read), last)
    return newest.sequence if newest else 0


async def purge_bounds(
    bus: Log, subjects: Subjects, history: History, cut: Cut, continued: int
) -> list[PurgeBound]:
    """The newest message that was read of each stream stays: its reader resumes from it. So does
    the message of a decision that a restored archive would not continue after.

    All heads stay: auditors compare the log with them, whatever was cut.
    """
    plan = await bus.last(Stream.PLAN, subjects.plan_meta)
    found = list(_fact_bounds(history, cut, plan.sequence if plan else 0))
    read = history.decisions_read()
    decided = await _last_cut_sequence(bus, history, cut, read.sequence)
    before = min(decided + 1, read.sequence, continued)
    found.append(PurgeBound(Stream.DEC, read.created, before))
    return found


def _fact_bounds(history: History, cut: Cut, plan: int) -> Iterator[PurgeBound]:
    """The newest plan stays too, because operators plan from it. A card whose last claim was
    purged counts as a card without claims, and the broker compares new claims with that.
    """
    checkpoint = history.checkpoint()
    for stream in MERGE_ORDER:
        at = cut.inputs.get(stream)
        read = checkpoint.inputs.get(stream) if checkpoint else None
        if at is None or read is None or at.created not in ("", read.created):
            continue
        before = min(at.sequence + 1, read.sequence)
        yield PurgeBound(
            stream, read.created, min(before, plan) if stream is Stream.PLAN else before
        )


async def _last_cut_sequence(bus: Log, history: History, cut: Cut, read: int) -> int:
    """The sequence of the last entry before the cut, or one shortly before it; 0: not there.

    Each entry after the cut took at least one message, so the first guess is an upper bound.
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


async def newest_records(bus: Log, stream: Stream, count: int) -> list[Record]:
    """The newest records of a stream, at most `count`."""
    state = await bus.state(stream)
    first = max(state.first, state.last - count + 1)
    return await _read(bus, stream, first, state.last - first + 1) if state.last else []


async def _read(bus: Log, stream: Stream, first: int, count: int) -> list[Record]:
    wakeup, found = asyncio.Event(), list[Record]()
    async with bus.reading(stream, first - 1, wakeup=wakeup) as reader:
        while len(found) < count:
            taken = reader.take(count - len(found))
            found.extend(taken)
            if not taken and not await wait_and_clear(wakeup, PATIENCE_S):
                raise NotTrimmed(
                    f"{stream} does not deliver {first + len(found)}: no message arrived for "
                    f"{PATIENCE_S:g} s. Completed steps stay; run it again."
                )
    return found
