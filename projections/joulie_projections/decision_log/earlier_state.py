"""Whether something was decided on the state of a database that an empty one replaced."""

import contextlib

from joulie_bus.errors import Undecodable
from joulie_bus.events import Basis, PlanMade, codec
from joulie_bus.log.protocol import Log
from joulie_bus.log.whole_stream import batches, whole
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream


async def was_decided_on(bus: Log) -> bool:
    """Reads up to the first such decision or plan. Before the first start of a projector, an
    extender may have answered, and declared its settings, without a view."""
    return await _is_in(bus, Stream.DEC) or await _is_in(bus, Stream.PLAN)


async def _is_in(bus: Log, stream: Stream) -> bool:
    async with contextlib.aclosing(batches(bus, stream, *await whole(bus, stream))) as read:
        async for records in read:
            if any(map(_rests_on_state, records)):
                return True
    return False


def _rests_on_state(record: Record) -> bool:
    try:
        event = codec.decoded(record.data, f"{record.stream} #{record.sequence}")
    except Undecodable:
        return False
    if isinstance(event, PlanMade):
        return event.view > 0
    basis = getattr(event, "basis", None)
    return isinstance(basis, Basis) and basis.view > 0 and basis.incarnation != ""
