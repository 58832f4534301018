"""Whether something was decided on the state of a database that an empty one replaced."""

import asyncio

from joulie_bus.errors import StreamSilent, Undecodable
from joulie_bus.events import Basis, PlanMade, codec
from joulie_bus.log.protocol import Log
from joulie_bus.log.whole_stream import AT_ONCE, PATIENCE_S
from joulie_bus.runtime.tasks import wait_and_clear
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream


async def was_decided_on(bus: Log) -> bool:
    """Reads up to the first such decision or plan. Before the first start of a projector, an
    extender may have answered, and declared its settings, without a view."""
    return await _is_in(bus, Stream.DEC) or await _is_in(bus, Stream.PLAN)


async def _is_in(bus: Log, stream: Stream) -> bool:
    state, bell = await bus.state(stream), asyncio.Event()
    left = state.last - state.first + 1 if state.last else 0
    async with bus.reading(stream, max(0, state.first - 1), bell=bell) as reader:
        while left > 0:
            records = reader.take(AT_ONCE)
            if any(map(_rests_on_state, records)):
                return True
            left -= len(records)
            if not records and not await wait_and_clear(bell, PATIENCE_S):
                raise StreamSilent(stream, 0, left, PATIENCE_S)
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
