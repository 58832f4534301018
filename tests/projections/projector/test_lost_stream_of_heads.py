"""A stream of heads that begins anew, as beside a new broker."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, connected, one_of_each, producer
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import FilterDecided
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import ensure
from joulie_bus.log.whole_stream import everything
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.head import decode
from joulie_projections.decision_log import writer as decision_writer
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.projector.projector import Projector, ProjectorSettings

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
[ANSWER] = [event for event in one_of_each() if isinstance(event, FilterDecided)]


async def heads(bus: JetStreamLog) -> list[int]:
    return [decode(record.data).pos for record in await everything(bus, Stream.HEADS)]


async def test_it_gets_the_newest_head_at_the_start_and_not_when_the_next_one_is_due(
    broker: Embedded,
    bus: JetStreamLog,
    writer: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then `joulie verify` reported a log whose heads were removed."""
    monkeypatch.setattr(decision_writer, "HEAD_EVERY_S", 3600.0)
    signer, settings = Signer.of(tmp_path / "key"), ProjectorSettings(lease_s=0.3)
    projector = Projector(bus, CLUSTER, writer, signer, settings)
    async with background(projector.run(), "projector"):
        await bus.publish([producer().stamp(ANSWER)])
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(DecisionLog(writer).read_to):
                await asyncio.sleep(0.02)
    before = await heads(bus)  # a projector that ends signs
    async with connected(broker, role=Role.ADMIN) as admin:
        await admin.api(f"STREAM.DELETE.{Stream.HEADS}")
        await ensure(admin, CLUSTER)

    again = Projector(bus, CLUSTER, writer, signer, settings)
    async with background(again.run(), "projector"):
        async with asyncio.timeout(60):
            while not (after := await heads(bus)):
                await asyncio.sleep(0.02)

    assert after == before == [1]
