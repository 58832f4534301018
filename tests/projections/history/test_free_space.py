"""The free space of streams, database and disk that a projector measures."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.jetstream.streams import declaration
from joulie_bus.runtime import metrics
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_bus.testing import CLUSTER, node_seen, producer, until
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
