"""The broker that holds a directory's past: the one that runs there, or one for the moment."""

import contextlib
from collections.abc import AsyncGenerator

from joulie_bus.embedded import Embedded
from joulie_bus.jetstream.log import JetStreamLog
from joulie_cli.wiring import Wiring, connected


@contextlib.asynccontextmanager
async def broker_of(wires: Wiring) -> AsyncGenerator[JetStreamLog, None]:
    """If nothing runs in the directory, its broker is started for as long as it is needed."""
    if wires.data.running() is not None or not (wires.data.path / "nats").exists():
        async with connected(wires, "audit") as bus:
            yield bus
        return
    hold = wires.data.hold()
    broker = Embedded(wires.data.path)
    try:
        await broker.start()
        async with JetStreamLog.open(broker.address, "joulie-audit") as bus:
            yield bus
    finally:
        await broker.stop()
        hold.release()
