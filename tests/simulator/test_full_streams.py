"""The simulator beside streams that take nothing more."""

import contextlib

import pytest

from joulie_bus.events import NodeGone
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.subjects import Stream
from joulie_bus.tasks import background
from joulie_bus.testing import full, producer, refusals, stored, until
from joulie_simulator import outbox
from joulie_simulator.outbox import Outbox

pytestmark = pytest.mark.anyio


async def test_what_a_full_stream_refused_is_stored_in_order_once_there_is_room(
    bus: JetStreamLog, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "RETRY_S", 0.05)
    before, box = refusals("observations"), Outbox(bus, producer())
    gone = [NodeGone(node=f"n{number}") for number in range(30)]
    async with contextlib.AsyncExitStack() as stack:
        async with full(connection, Stream.OBS):
            task = await stack.enter_async_context(background(box.tell_for_ever(), "tell"))
            await box.put(gone)
            await until(lambda: refusals("observations") >= before + 2)
            assert not task.done()
        await box.tell([])

    says = producer()
    told = [record.data for record in await stored(connection, Stream.OBS)]
    assert told == [says.stamp(event).data for event in gone]
