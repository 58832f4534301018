"""Projectors with different keys: only one that has the log's key leads."""

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, one_of_each, producer
from joulie_bus.errors import KeyOfAnotherLog
from joulie_bus.events import FilterDecided
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.log.whole_stream import everything
from joulie_bus.streams.subjects import Stream
from joulie_projections.chain.head import decode
from joulie_projections.decision_log.heads import Signer, replaced_path
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.store.database import Place

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
SENDER = producer()
Start = Callable[..., asyncio.Task[None]]
[ANSWER] = [event for event in one_of_each() if isinstance(event, FilterDecided)]


@pytest.fixture
def start(bus: JetStreamLog, place: Place, tmp_path: Path) -> Generator[Start, None, None]:
    engines: list[Engine] = []

    def begin(key: str) -> asyncio.Task[None]:
        settings = ProjectorSettings(lease_s=0.3)
        signer = Signer.of(tmp_path / key)
        engines.append(database.writer(place))
        return asyncio.create_task(Projector(bus, CLUSTER, engines[-1], signer, settings).run())

    yield begin
    for engine in engines:
        engine.dispose()


async def signed(bus: JetStreamLog, writer: Engine, leading: asyncio.Task[None]) -> None:
    """Publishes an answer, waits until it is an entry, and ends the projector, which signs it."""
    log, before = DecisionLog(writer), DecisionLog(writer).read_to()
    await bus.publish([SENDER.stamp(ANSWER)])
    async with asyncio.timeout(60):
        while await asyncio.to_thread(log.read_to) == before:
            await asyncio.sleep(0.02)
    leading.cancel()
    await asyncio.wait([leading])


async def keys_of(bus: JetStreamLog) -> set[str]:
    return {decode(record.data).key_id for record in await everything(bus, Stream.HEADS)}


async def test_a_projector_with_another_key_refuses_to_start(
    bus: JetStreamLog, writer: Engine, start: Start, tmp_path: Path
) -> None:
    await signed(bus, writer, start("one.key"))

    with pytest.raises(KeyOfAnotherLog, match=Signer.of(tmp_path / "one.key").key_id):
        await start("two.key")

    assert await keys_of(bus) == {Signer.of(tmp_path / "one.key").key_id}


async def test_a_standby_with_another_key_refuses_to_lead(
    bus: JetStreamLog, writer: Engine, start: Start
) -> None:
    leading = start("one.key")
    while DecisionLog(writer).read_to() == 0:  # it leads, and has signed nothing
        await bus.publish([SENDER.stamp(ANSWER)])
        await asyncio.sleep(0.05)
    standby = start("two.key")
    await signed(bus, writer, leading)

    with pytest.raises(KeyOfAnotherLog):
        await standby

    assert len(await keys_of(bus)) == 1


async def test_a_lost_key_is_replaced_by_name(
    bus: JetStreamLog, writer: Engine, start: Start, tmp_path: Path
) -> None:
    await signed(bus, writer, start("one.key"))
    lost = Signer.of(tmp_path / "one.key").key_id

    replaced_path(tmp_path / "two.key").write_text(f"{lost}\n")

    await signed(bus, writer, start("two.key"))

    assert await keys_of(bus) == {lost, Signer.of(tmp_path / "two.key").key_id}
