"""The simulator with full streams."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, full, producer, refusals, stored, until
from joulie_bus.events import NodeGone
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.view.view import View
from joulie_simulator.scheduler import outbox
from joulie_simulator.scheduler.outbox import Outbox
from joulie_simulator.service import Simulation, SimulatorOptions

pytestmark = pytest.mark.anyio


async def test_events_refused_by_a_full_stream_are_stored_in_order_later(
    bus: JetStreamLog, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "RETRY_S", 0.05)
    before, box = refusals("observations"), Outbox(bus, producer())
    gone = [NodeGone(node=f"n{number}") for number in range(30)]
    async with contextlib.AsyncExitStack() as stack:
        async with full(connection, Stream.OBS):
            task = await stack.enter_async_context(background(box.publish_forever(), "tell"))
            await box.put(gone)
            await until(lambda: refusals("observations") >= before + 2)
            assert not task.done()
        await box.publish([])

    stamping = producer()
    facts = [record.data for record in await stored(connection, Stream.OBS)]
    assert facts == [stamping.stamp(event).data for event in gone]


async def test_a_simulation_continues_while_the_telemetry_stream_is_full(
    bus: JetStreamLog, connection: Connection, database_file: Path, writer: Engine, tmp_path: Path
) -> None:
    signer = Signer.of(tmp_path / "key")
    projector = Projector(bus, CLUSTER, writer, signer, ProjectorSettings())
    settings = SimulatorOptions(nodes=2, sample_s=0.1)
    before, engine = refusals("telemetry"), database.reader(database_file)
    async with (
        background(projector.run(), "projector"),
        View.open(bus, engine, CLUSTER) as view,
        contextlib.AsyncExitStack() as stack,
    ):
        async with full(connection, Stream.TEL):
            simulation = Simulation(bus, CLUSTER, view, settings)
            task = await stack.enter_async_context(background(simulation.run(), "simulation"))
            await until(lambda: refusals("telemetry") >= before + 2)
            assert not task.done()
        async with asyncio.timeout(60):
            while (await bus.state(Stream.TEL)).last == 0:
                await asyncio.sleep(0.05)
    engine.dispose()
