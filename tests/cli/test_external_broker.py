"""An external broker: `joulie migrate` creates its streams, and missing ones are named."""

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import joulie_forked
from joulie_bus.broker.embedded import Embedded
from joulie_bus.jetstream.streams import require
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_bus.testing import bare_broker, connected

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncGenerator[Embedded, None]:
    async with bare_broker(tmp_path / "broker") as running:
        yield running


async def joulie(command: str, data: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NATS_")}
    told = {**clean, "METRICS_ADDR": f"127.0.0.1:{free_port()}", **environ}
    return await asyncio.to_thread(joulie_forked.joulie, command, "--data", str(data), environ=told)


def as_role(broker: Embedded, role: Role) -> dict[str, str]:
    return broker.address_of(role).as_settings()


async def test_migrate_creates_the_streams_of_the_broker_in_the_settings(
    bare: Embedded, tmp_path: Path
) -> None:
    done = await joulie("migrate", tmp_path / "data", **as_role(bare, Role.ADMIN))
    async with connected(bare, role=Role.VIEWER) as connection:
        await require(connection, Subjects("local"))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"The streams are at {bare.url}.\n")


async def test_migrate_without_a_broker_changes_only_the_database(tmp_path: Path) -> None:
    done = await joulie("migrate", tmp_path / "data")

    assert done.returncode == 0
    assert "streams" not in done.stdout


async def test_a_part_without_its_streams_names_the_command_that_creates_them(
    bare: Embedded, tmp_path: Path
) -> None:
    await joulie("migrate", tmp_path / "data")
    done = await joulie("projector", tmp_path / "data", **as_role(bare, Role.PROJECTOR))

    assert done.returncode == 2
    assert f"The broker at {bare.url} has no stream JOULIE_TEL" in done.stderr
    assert "Run `joulie migrate`" in done.stderr


async def test_only_the_administrator_creates_streams(bare: Embedded, tmp_path: Path) -> None:
    told = as_role(bare, Role.EXTENDER)
    done = await joulie("migrate", tmp_path / "data", **told)

    assert done.returncode == 2
    assert "STREAM.CREATE.JOULIE_TEL: this user may not do that (code 403)" in done.stderr
    assert told["NATS_PASSWORD"] not in done.stdout + done.stderr
