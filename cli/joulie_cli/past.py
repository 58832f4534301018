"""The broker that holds a directory's past: the one that runs there, or one for the moment."""

import contextlib
from collections.abc import AsyncGenerator

from joulie_bus.embedded import Embedded
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.roles import Role
from joulie_cli.supervisor import made_ready
from joulie_cli.wiring import Wiring, connected


@contextlib.asynccontextmanager
async def broker_of(wires: Wiring) -> AsyncGenerator[JetStreamLog, None]:
    """If nothing runs in the directory, its broker is started for as long as it is needed."""
    if wires.data.running() is not None or not (wires.data.path / "nats").exists():
        async with connected(wires, Role.AUDITOR) as bus:
            yield bus
        return
    hold = wires.data.hold()
    broker = Embedded(wires.data.path)
    try:
        await broker.start()
        await made_ready(broker, wires.subjects)
        async with JetStreamLog.open(broker.address_of(Role.AUDITOR), "joulie-audit") as bus:
            yield bus
    finally:
        await broker.stop()
        hold.release()
