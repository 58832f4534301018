"""Purges the messages before a cut that no reader will request from a stream again."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from joulie_bus.errors import NotTrimmed
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import MERGE_ORDER, Stream, Subjects
from joulie_projections.chain.head import Head, head_in, statement_in
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


async def purge_to(bus: PurgingLog, bounds: Sequence[PurgeBound]) -> dict[str, int]:
    """Purges each stream up to its bound. Idempotent. How many messages of each stream."""
    purged: dict[str, int] = {}
    for stream, created, bound in bounds:
        state = await bus.state(stream)
        before = min(bound, state.last)  # an empty stream would restart its sequence
        if created not in ("", state.created) or before <= state.first:
            continue
        await bus.purge(stream, before)
        purged[str(stream)] = before - state.first
    return purged


async def purge_bounds(
    bus: Log, subjects: Subjects, history: History, cut: Cut
) -> list[PurgeBound]:
    """The newest message that was read of each stream stays: its reader resumes from it.

    All heads stay: auditors compare the log with them, whatever was cut.
    """
    plan = await bus.last(Stream.PLAN, subjects.plan_meta)
    found = list(_fact_bounds(history, cut, plan.sequence if plan else 0))
    signed = head_in(cut.note)
    read = signed.commitment.read.get(Stream.DEC) if signed is not None else None
    if read is not None:  # the log, restored or not, begins at this head or at a later one
        found.append(PurgeBound(Stream.DEC, read.created, read.sequence))
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


async def anchored_heads(bus: Log, signed: int) -> list[Head]:
    """The heads in the stream of a log that has `signed` of them. Each is anchored once; the margin
    leaves room for statements about keys."""
    records = await newest_records(bus, Stream.HEADS, 2 * signed + 100)
    statements = (statement_in(record.data) for record in records)
    return [each for each in statements if isinstance(each, Head)]


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
