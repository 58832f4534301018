"""An external broker: `joulie migrate` creates its streams, and missing ones are named."""

import asyncio
import os
import subprocess
import sys
from asyncio import StreamReader
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import joulie_forked
from bus_kit import bare_broker, connected
from joulie_bus.broker.embedded import Embedded
from joulie_bus.jetstream.streams import require
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_cli.supervisor.supervisor import free_addresses

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncGenerator[Embedded, None]:
    async with bare_broker(tmp_path / "broker") as running:
        yield running


async def joulie(command: str, data: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    told = environment(**environ)
    return await asyncio.to_thread(joulie_forked.joulie, command, "--data", str(data), environ=told)


def environment(**environ: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NATS_")}
    return {**clean, **free_addresses(), **environ}


def as_role(broker: Embedded, role: Role) -> dict[str, str]:
    return broker.address_of(role).as_settings()


async def test_migrate_creates_the_streams_of_the_broker_in_the_settings(
    bare: Embedded, tmp_path: Path
) -> None:
    done = await joulie("migrate", tmp_path / "data", **as_role(bare, Role.ADMIN))
    async with connected(bare, role=Role.VIEWER) as connection:
        await require(connection, Subjects("local"))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"The streams are at {bare.url}.\n")


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


@pytest.mark.parametrize(
    ("component", "role", "runs"),
    [
        ("projector", Role.PROJECTOR, "leading"),
        ("extender", Role.EXTENDER, "serving"),
        ("console", Role.CONSOLE, "serving"),
    ],
)
async def test_a_component_that_starts_before_the_migration_waits_for_it(
    bare: Embedded, tmp_path: Path, component: str, role: Role, runs: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "joulie_cli.main", component, "--data", str(tmp_path / "data")),
        env=environment(MIGRATION_TIMEOUT="1m", **as_role(bare, role)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        await until_line(process.stdout, "waits_for_migration")
        await joulie("migrate", tmp_path / "data", **as_role(bare, Role.ADMIN))
        await until_line(process.stdout, runs)
    finally:
        process.terminate()
        await process.communicate()


async def until_line(lines: StreamReader, words: str) -> None:
    async for line in lines:
        if words in line.decode():
            return
    pytest.fail(f"it ended without {words!r}")
