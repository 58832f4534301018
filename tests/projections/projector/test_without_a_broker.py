"""Projector and view on the in-memory log, with a virtual clock."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, VirtualClock, hardware, memory_log, power, producer
from bus_kit.memory_broker import MemoryBroker, MemoryLog
from joulie_bus.errors import StreamGap
from joulie_bus.log.protocol import Log
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.view.view import View

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def projecting(
    bus: Log, writer: Engine, place: Place, key: Path
) -> AsyncGenerator[tuple[View, asyncio.Task[None]], None]:
    signer = Signer.of(key)
    projector = Projector(bus, CLUSTER, writer, signer, ProjectorSettings())
    reader = database.reader(place)
    try:
        async with (
            background(projector.run(), "projector") as task,
            View.open(bus, reader, CLUSTER) as view,
        ):
            await view.wait_ready(60)
            yield view, task
    finally:
        reader.dispose()


async def test_a_node_with_rising_power_shows_its_trend(
    writer: Engine, place: Place, tmp_path: Path
) -> None:
    clock, sender = VirtualClock(), producer()
    bus = memory_log(clock)
    async with projecting(bus, writer, place, tmp_path / "key") as (view, _):
        await bus.publish([sender.stamp(hardware("n"))])
        for minute in range(5):
            await bus.publish([sender.stamp(power("n", 300 + 20 * minute))])
            clock.advance(60)
        await view.wait_for(6, 60)

        twin_columns = view.snapshot().twin_columns
        assert twin_columns.floats("trend_w_per_min")[twin_columns.rows["n"]] == pytest.approx(20)


async def test_a_stream_that_was_trimmed_past_the_position_stops_the_projector(
    writer: Engine, place: Place, tmp_path: Path
) -> None:
    broker, sender = MemoryBroker(CLUSTER, VirtualClock()), producer()
    bus = MemoryLog(broker)
    await bus.publish([sender.stamp(power("n", watts)) for watts in range(10)])
    broker.trim(Stream.TEL, 5)

    with pytest.raises(ExceptionGroup) as ended:
        async with projecting(bus, writer, place, tmp_path / "key") as (_, task):
            await task

    assert ended.group_contains(StreamGap)
