"""The broker that holds a directory's past: the one that runs there, or one for the moment."""

import contextlib
from collections.abc import AsyncGenerator

from joulie_bus.embedded import Embedded
from joulie_bus.jetstream.connection import Connection
from joulie_cli.wiring import Wiring, connected


@contextlib.asynccontextmanager
async def broker_of(wires: Wiring) -> AsyncGenerator[Connection, None]:
    """If nothing runs in the directory, its broker is started for as long as it is needed."""
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
