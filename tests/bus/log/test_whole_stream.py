"""Reading a whole stream at once."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from bus_kit import CLUSTER, NOON, power, producer
from bus_kit.memory_broker import MemoryBroker, MemoryLog, MemoryReader
from joulie_bus.errors import StreamSilent
from joulie_bus.log.whole_stream import everything, messages
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio


class Silent(MemoryReader):
    def take(self, limit: int) -> list[Record]:
        return []


class SilentLog(MemoryLog):
    """A broker that names messages and sends none of them."""

    @contextlib.asynccontextmanager
    async def reading(self, stream: Stream, *_: Any, **__: Any) -> AsyncGenerator[MemoryReader]:
        yield Silent(self._broker, stream, 0, "", b"")


async def log_with_three(kind: type[MemoryLog]) -> MemoryLog:
    log = kind(MemoryBroker(CLUSTER, lambda: NOON))
    stamp = producer().stamp
    await log.publish([stamp(power("n", watts)) for watts in range(3)])
    return log


async def test_all_messages_are_read() -> None:
    found = await everything(await log_with_three(MemoryLog), Stream.TEL)

    assert [record.sequence for record in found] == [1, 2, 3]


@pytest.mark.long
async def test_a_broker_that_stops_sending_is_an_error_that_names_the_stream() -> None:
    log = await log_with_three(SilentLog)

    with pytest.raises(StreamSilent, match="sent 0 of 3 messages of JOULIE_TEL"):
        await messages(log, Stream.TEL, 0, 3, patience_s=0.01)
