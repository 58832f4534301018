"""The steps of docs/backup.md for streams that a snapshot of nats-server brings back."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from nats.aio.client import Client

from joulie_bus.broker.embedded import Embedded
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_demo import demo, joulie, told_by
from nats_snapshot import Snapshot, connected, restore, snapshot_of
from recorded_demo import RecordedDemo

pytestmark = pytest.mark.slow
SMALL = ("--nodes", "20", "--seed", "3")


@pytest.fixture
def data(recorded_demo: RecordedDemo, tmp_path: Path) -> Path:
    """The data directory of a demo that has ended."""
    copy = tmp_path / "data"
    shutil.copytree(recorded_demo.data, copy, ignore=shutil.ignore_patterns("run.json"))
    return copy


@contextlib.asynccontextmanager
async def administered(data: Path) -> AsyncGenerator[Client, None]:
    """The broker of the directory runs for this block."""
    broker = Embedded(data)
    await broker.start()
    try:
        client = await connected(broker.address_of(Role.ADMIN))
        yield client
        await client.close()
    finally:
        await broker.stop()


async def snapshots_of(data: Path) -> Sequence[Snapshot]:
    async with administered(data) as client:
        return [await snapshot_of(client, stream) for stream in Stream]


async def restored(data: Path, snapshots: Sequence[Snapshot]) -> None:
    """Streams with the same messages, under new identities."""
    async with administered(data) as client:
        for each in snapshots:
            await restore(client, each)


@pytest.mark.long
def test_a_log_continues_with_streams_that_a_snapshot_brought_back(data: Path) -> None:
    asyncio.run(restored(data, asyncio.run(snapshots_of(data))))
    _, before = told_by("verify", "--heads", "none", "--data", data)

    refused = joulie("projector", "--data", data)
    done = joulie("migrate", "--adopt", "--data", data)

    assert refused.returncode != 0
    assert done.returncode == 0, done.stderr
    assert "JOULIE_DEC holds what was read, up to " in done.stdout
    with demo(data, *SMALL) as started:
        started.await_decisions(started.counts().answers + 10)
        started.end()
    verified, log = told_by("verify", "--data", data)
    replayed, report = told_by("replay", "--data", data)
    assert (verified, replayed, report["mismatches"]) == (0, 0, 0), (log, report)
    assert log["entries"] > before["entries"]


@pytest.mark.long
def test_an_older_snapshot_is_refused(data: Path) -> None:
    older = asyncio.run(snapshots_of(data))
    with demo(data, *SMALL) as started:
        started.await_decisions(started.counts().answers + 10)
        started.end()
    asyncio.run(restored(data, older))

    refused = joulie("migrate", "--adopt", "--data", data)

    assert refused.returncode == 2
    assert "do not hold what the database has read: " in refused.stderr
    assert "JOULIE_DEC: it ends at " in refused.stderr
    assert joulie("migrate", "--adopt", "--data", data).returncode == 2
