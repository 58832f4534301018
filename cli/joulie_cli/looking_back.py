"""`verify` and `replay` over a data directory, whether something runs in it or not."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from joulie_audit.replay import Replayed, replay
from joulie_audit.verify import Report, verify
from joulie_bus.embedded import Embedded
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.reader import Reader
from joulie_bus.jetstream.streams import state_of
from joulie_bus.subjects import Stream
from joulie_cli.parts import Wiring, connected
from joulie_projections import heads
from joulie_projections.heads import Head
from joulie_projections.history import History

PATIENCE_S = 10.0


async def verify_data(wires: Wiring) -> Report:
    wires.data.require()
    async with broker_of(wires) as connection:
        anchored = await _anchored(connection)
    with History.of(wires.data.database) as history:
        return verify(history, heads.public_key(wires.data.public_key), anchored)


async def replay_data(wires: Wiring) -> Replayed:
    wires.data.require()
    with History.of(wires.data.database) as history:
        async with broker_of(wires) as connection:
            return await replay(history, connection)


@contextlib.asynccontextmanager
async def broker_of(wires: Wiring) -> AsyncGenerator[Connection, None]:
    """The broker that runs here; if none does, one that is started for as long as it is needed."""
    if wires.data.running() is not None or not (wires.data.path / "nats").exists():
        async with connected(wires, "audit") as connection:
            yield connection
        return
    hold = wires.data.hold()
    broker = Embedded(wires.data.path)
    try:
        await broker.start()
        connection = await Connection.open(broker.address, "joulie-audit")
        try:
            yield connection
        finally:
            await connection.close()
    finally:
        await broker.stop()
        hold.release()


async def _anchored(connection: Connection) -> Sequence[Head]:
    """The heads that were put out of the database's reach."""
    last = (await state_of(connection, Stream.HEADS)).last
    found: list[Head] = []
    bell = asyncio.Event()
    async with Reader.on(connection, Stream.HEADS, 0, bell=bell) as reader:
        while len(found) < last:
            bell.clear()
            records = reader.take(1000)
            found.extend(heads.decode(record.data) for record in records)
            if not records:
                await asyncio.wait_for(bell.wait(), PATIENCE_S)
    return found
