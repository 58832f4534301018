"""What the stream of heads holds: heads of this log, among messages of any sender.

A message that no key of the log signed proves nothing: the writer must neither wait for the entry
that it names nor store it. `joulie verify` reports such messages. Signatures are checked where a
head is used: there are many.
"""

from collections.abc import Sequence
from typing import NamedTuple

from joulie_bus.log.answered import until_answered
from joulie_bus.log.protocol import Log
from joulie_bus.log.whole_stream import messages
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.head import Head, statement_in
from joulie_projections.chain.keyring import Ring

NEWEST = 4096  # messages: a head each 10 s for half a day


class Anchored(NamedTuple):
    ring: Ring  # with the changes of keys that the stream holds
    heads: Sequence[Head] = ()  # signed by any key; those of the highest entries come first
    is_whole: bool = True  # whether all messages were read
    last: int = 0  # the last message of the stream, when it was read

    @property
    def newest(self) -> Head | None:
        """The one of the highest entry that counts: not the last message, which may come late."""
        return next(filter(self.ring.stands_alone, self.heads), None)

    @property
    def first(self) -> int:
        """The lowest entry of a head; 0 if there is none."""
        return self.heads[-1].pos if self.heads else 0


async def newest(bus: Log, ring: Ring) -> Anchored:
    """Of the newest messages; of all, if none of these is a head of the log."""
    found = await _read(bus, ring, NEWEST)
    return found if found.is_whole or found.newest is not None else await everything(bus, ring)


async def everything(bus: Log, ring: Ring) -> Anchored:
    return await _read(bus, ring, None)


async def since(bus: Log, ring: Ring, last: int) -> Anchored:
    """Of the messages after this one. Raises BusError."""
    state = await bus.state(Stream.HEADS)
    after = max(last, state.first - 1)
    if state.last <= after:
        return Anchored(ring, last=last)
    found = await messages(bus, Stream.HEADS, after, state.last - after)
    return _anchored(found, ring, is_whole=False)._replace(last=state.last)


async def _read(bus: Log, ring: Ring, limit: int | None) -> Anchored:
    state = await until_answered(lambda: bus.state(Stream.HEADS))
    if not state.holds_messages:
        return Anchored(ring, last=state.last)
    before = max(0, state.first - 1)
    after = before if limit is None else max(before, state.last - limit)
    found = await messages(bus, Stream.HEADS, after, state.last - after)
    return _anchored(found, ring, is_whole=after == before)._replace(last=state.last)


def _anchored(records: Sequence[Record], ring: Ring, *, is_whole: bool) -> Anchored:
    read = [each for each in (statement_in(record.data) for record in records) if each is not None]
    ring, _ = ring.with_all(each for each in read if not isinstance(each, Head))
    heads = [each for each in read if isinstance(each, Head)]
    return Anchored(ring, sorted(heads, key=lambda head: -head.pos), is_whole)
