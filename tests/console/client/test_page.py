"""The examples of docs/client.md, run word for word."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import joulie_migrations
from audit_kit import RecordedLog, small_log_in, written_archive
from bus_kit import ask, eco, hardware, node_seen, power
from console_kit import ConsoleHarness
from joulie_projections.store import database

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
PAGE = (Path(__file__).parents[3] / "docs" / "client.md").read_text()
NODES, POD, LIST, STREAM, REPLAY = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@asynccontextmanager
async def running(code: str, **environ: str) -> AsyncGenerator[asyncio.StreamReader, None]:
    """The output of an example."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", code),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environ},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield process.stdout
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def printed(code: str, **environ: str) -> list[str]:
    async with running(code, **environ) as output:
        return (await output.read()).decode().splitlines()


async def test_nodes_are_listed(scenario: ConsoleHarness) -> None:
    found = await printed(NODES, CONSOLE_URL=scenario.url)

    assert sorted(line.split()[0] for line in found) == ["n1", "n2", "n3"]
    assert any(line.startswith("n2 300.0 ") for line in found)


async def test_a_pod_is_explained(scenario: ConsoleHarness) -> None:
    found = await printed(POD, CONSOLE_URL=scenario.url)

    assert "n1" in found[-1]


async def test_the_list_has_every_decision(scenario: ConsoleHarness) -> None:
    found = await printed(LIST, CONSOLE_URL=scenario.url)

    assert [line.split()[:2] for line in found] == [["team", "heavy"], ["team", "runs"]]


async def test_decisions_are_followed(new_harness: NewHarness) -> None:
    async with (
        new_harness() as harness,
        running(STREAM, CONSOLE_URL=harness.url, AFTER="0.0") as output,
    ):
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100), eco("n1"))
        await harness.decide(ask("p1"))
        found = [(await output.readline()).decode() for _ in range(4)]

    assert any(line.endswith("n1 eco\n") for line in found)
    assert any(" p1 " in line for line in found)


async def test_an_archive_is_replayed(tmp_path: Path) -> None:
    file, archive = tmp_path / "joulie.db", tmp_path / "archive"
    made = database.migrator(file)
    joulie_migrations.upgrade(made)
    made.dispose()
    async with small_log_in(file, tmp_path) as recorded:
        await exported(recorded, archive)

    found = await printed(REPLAY, ARCHIVE=str(archive))

    assert found == ["8 decisions and 1 plans recomputed"]


async def exported(recorded: RecordedLog, to: Path) -> None:
    await written_archive(recorded, to)
