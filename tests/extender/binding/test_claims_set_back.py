"""A stream of claims that was set back to an older state gives no card out twice."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from bus_kit import CLUSTER, Backup, claim, node_seen, producer, released, until
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import StreamReplaced, ViewBehind
from joulie_bus.events import AnyEvent, GpuSeen
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_extender.binding.claim_log import ClaimLog
from joulie_projections.decision_log.heads import Signer
from joulie_projections.projector.projector import Projector, ProjectorSettings
from joulie_projections.store import database
from joulie_projections.view.view import View

pytestmark = pytest.mark.anyio


@pytest.fixture
async def view(bus: JetStreamLog, database_file: Path) -> AsyncGenerator[View, None]:
    engine = database.reader(database_file)
    async with View.open(bus, engine, CLUSTER) as opened:
        yield opened
    engine.dispose()


@pytest.fixture
def projector(bus: JetStreamLog, writer: Engine, tmp_path: Path) -> Projector:
    return another_projector(bus, writer, tmp_path)


def another_projector(bus: JetStreamLog, writer: Engine, tmp_path: Path) -> Projector:
    settings = ProjectorSettings(lease_s=0.3)
    return Projector(bus, CLUSTER, writer, Signer.of(tmp_path / "key"), settings)


async def tell(bus: JetStreamLog, boot: str, *events: AnyEvent) -> None:
    says = producer(boot=boot)
    await bus.publish([says.stamp(event) for event in events])


def seen(*uuids: str) -> list[GpuSeen]:
    return [GpuSeen(uuid=uuid, node="n1", model="A100", total_mb=40_960) for uuid in uuids]


async def claims_written(bus: JetStreamLog, claim_log: ClaimLog, uid: str) -> list[str]:
    """Which of two cards the pod gets, as far as the ledger lets it."""
    got = []
    for card in ("g1", "g2"):
        try:
            events = await claim_log.write([card], lambda card=card: [claim(card, uid)])  # type: ignore[misc]
        except (StreamReplaced, ViewBehind):
            continue
        got += [event.card for event in events]
    return got


async def test_no_card_is_given_out_twice_and_the_projector_stops(  # noqa: PLR0913
    broker: Embedded,
    bus: JetStreamLog,
    connection: Connection,
    view: View,
    projector: Projector,
    writer: Engine,
    tmp_path: Path,
) -> None:
    claim_log = ClaimLog(bus, CLUSTER, view, "r0")
    async with background(projector.run(), "projector"):
        await tell(bus, "b1", node_seen("n1"), *seen("g1", "g2", "g3"))
        backup = await Backup.of(broker, tmp_path / "broker")
        await tell(bus, "b2", claim("g3", "p1"), released("g3", "p1"), claim("g3", "p2"))
        await until(lambda: view.cluster_state.claims_read == 3)
    before = view.position
    await backup.set_back()
    await until(lambda: connection.is_connected)
    await tell(bus, "b3", claim("g1", "other"), claim("g3", "x"), released("g3", "x"))
    await tell(bus, "b4", claim("g2", "another"))

    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(another_projector(bus, writer, tmp_path).run(), 60)
    given = await claims_written(bus, claim_log, "pod")

    assert ended.group_contains(StreamReplaced, match="JOULIE_CLAIM is at a different message 3")
    assert given == []
    assert ((await bus.state(Stream.CLAIM)).last, view.position) == (4, before)


async def test_a_history_that_is_the_same_is_written_on(
    bus: JetStreamLog, view: View, projector: Projector
) -> None:
    claim_log = ClaimLog(bus, CLUSTER, view, "r0")
    async with background(projector.run(), "projector"):
        await tell(bus, "b1", node_seen("n1"), *seen("g1", "g2"), claim("g1", "p1"))
        await until(lambda: view.cluster_state.claims_read == 1)

        assert await claims_written(bus, claim_log, "pod") == ["g1", "g2"]


async def test_a_stream_that_lost_its_end_takes_no_claims(
    broker: Embedded, bus: JetStreamLog, view: View, projector: Projector, tmp_path: Path
) -> None:
    """Without growth the projector stops by the last sequence; the ledger must not go on alone."""
    claim_log = ClaimLog(bus, CLUSTER, view, "r0")
    backup = await Backup.of(broker, tmp_path / "broker")
    async with background(projector.run(), "projector"):
        await tell(bus, "b1", node_seen("n1"), *seen("g1", "g2", "g3"), claim("g3", "p1"))
        await until(lambda: view.cluster_state.claims_read == 1)
    await backup.set_back()

    assert await claims_written(bus, claim_log, "pod") == []
