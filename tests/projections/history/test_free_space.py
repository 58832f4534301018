"""The free space of streams, database and disk that a projector measures."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bus_kit import CLUSTER, connected, node_seen, producer, running_cluster, until
from joulie_bus.errors import JoulieError
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import declaration, ensure
from joulie_bus.runtime import metrics
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_projections.history import free_space
from joulie_projections.history.free_space import FreeSpaceMonitor
from joulie_projections.store.database import Place

pytestmark = pytest.mark.anyio


def shown(name: str, stream: Stream | None = None) -> float | None:
    labels = {"stream": str(stream)} if stream else {}
    return metrics.shown_by("projector").get_sample_value(name, labels)


async def test_streams_database_and_disk_are_measured(
    bus: JetStreamLog, connection: Connection, place: Place, tmp_path: Path
) -> None:
    await bus.publish([producer().stamp(node_seen("a"))])
    unlimited = declaration(Stream.PLAN, CLUSTER) | {"max_bytes": -1}
    await connection.api(f"STREAM.UPDATE.{Stream.PLAN}", unlimited)
    await FreeSpaceMonitor(bus, place, tmp_path).measure()

    assert (shown("joulie_stream_bytes", Stream.OBS) or 0) > 50
    assert shown("joulie_stream_bytes", Stream.CLAIM) == 0
    assert shown("joulie_stream_max_bytes", Stream.OBS) == 4 * 1024**3
    assert shown("joulie_stream_max_bytes", Stream.PLAN) is None
    assert shown("joulie_stream_days_left", Stream.OBS) is None, "it is too young"
    assert (shown("joulie_database_bytes") or 0) > 10_000
    free, size = shown("joulie_data_free_bytes"), shown("joulie_data_size_bytes")
    assert 0 < (free or 0) < (size or 0)


@pytest.mark.slow
async def test_a_server_of_the_broker_that_is_down_is_named(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_space, "SERVER_LOST_NS", 3 * 10**9)
    async with (
        running_cluster(tmp_path / "servers") as servers,
        connected(servers["n0"]) as connection,
    ):
        await ensure(connection, CLUSTER, replicas=3)
        async with JetStreamLog.over(connection) as bus:
            monitor = FreeSpaceMonitor(bus, place, tmp_path)
            await shown_lost(monitor, {"n0": 0, "n1": 0, "n2": 0})
            servers["n2"].kill()
            await servers["n2"].wait()
            await shown_lost(monitor, {"n0": 0, "n1": 0, "n2": 1})


async def shown_lost(monitor: FreeSpaceMonitor, wanted: dict[str, float]) -> None:
    while True:
        with contextlib.suppress(JoulieError):  # while the servers elect a leader
            await monitor.measure()
        (family,) = metrics.BROKER_SERVER_LOST.collect()
        if {each.labels["server"]: each.value for each in family.samples} == wanted:
            return
        await asyncio.sleep(0.3)


async def test_a_failed_measurement_is_logged_once_and_retried(
    bus: JetStreamLog, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_space, "POLL_S", 0.02)
    missing = tmp_path / "missing"
    metrics.DATA_SIZE_BYTES.set(-1)
    with capture_logs() as lines:
        async with background(FreeSpaceMonitor(bus, place, missing).run(), "room"):
            await until(lambda: bool(lines))
            missing.mkdir()
            await until(lambda: (shown("joulie_data_size_bytes") or 0) > 0)

    assert [line["event"] for line in lines] == ["free_space_unknown"]
