"""A component's view of the twins. Apart from the wiring, for components that have none."""

import contextlib
from collections.abc import AsyncGenerator

from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.streams.roles import Role
from joulie_projections.component.connecting import connected
from joulie_projections.component.wiring import Wiring
from joulie_projections.store import database
from joulie_projections.view.view import View


@contextlib.asynccontextmanager
async def viewing(wires: Wiring, role: Role) -> AsyncGenerator[tuple[JetStreamLog, View], None]:
    wires.data.require()
    engine = database.reader(wires.data.database)
    try:
        async with (
            connected(wires, role) as bus,
            View.open(bus, engine, wires.subjects) as view,
        ):
            yield bus, view
    finally:
        engine.dispose()
