"""`joulie keys` with a projector in another process, and without one."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import joulie_forked
from bus_kit import decided, producer, stored
from joulie_bus.broker.embedded import Embedded
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.ports import free_port
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream
from joulie_forked import Command
from joulie_projections.decision_log.heads import Signer

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings(broker: Embedded) -> dict[str, str]:
    address = broker.address_of(Role.PROJECTOR)
    return {
        **address.as_settings(),
        "JOULIE_CLUSTER": "test",
    }


async def joulie(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    told = {**os.environ, **environ}
    return await asyncio.to_thread(joulie_forked.joulie, *words, environ=told)


@pytest.fixture
async def running(tmp_path: Path, settings: dict[str, str]) -> AsyncGenerator[Path, None]:
    """A projector, and the directory of its key."""
    data = tmp_path / "data"
    made = await joulie("migrate", "--data", str(data))
    assert made.returncode == 0, made.stderr
    projector = Command(
        ("projector", "--data", data),
        {**os.environ, **settings, "METRICS_ADDR": f"127.0.0.1:{free_port()}"},
        tmp_path,
        constants={"joulie_projections.decision_log.writer.HEAD_EVERY_S": 0.5},
    )
    try:
        yield data
    finally:
        await asyncio.to_thread(projector.stop)


async def decide(bus: JetStreamLog, connection: Connection, uid: str, messages: int) -> None:
    """Publish a decision, then `messages` messages next to the heads."""
    await bus.publish([producer(uid).stamp(decided(uid))])
    async with asyncio.timeout(60):
        while len(await stored(connection, Stream.HEADS)) < messages:
            await asyncio.sleep(0.1)


async def test_a_key_is_changed_and_retired_while_the_projector_runs(
    running: Path, settings: dict[str, str], bus: JetStreamLog, connection: Connection
) -> None:
    data = ("--data", str(running))
    await decide(bus, connection, "a", 1)

    rotated = await joulie("keys", "rotate", "-o", "json", *data)
    await decide(bus, connection, "b", 3)
    retired = await joulie("keys", "retire", "1", "--compromised-since", "-1h", *data, **settings)
    verified = await joulie("verify", *data, **settings)
    listed = await joulie("keys", *data)

    assert (rotated.returncode, rotated.stderr) == (0, "")
    first, second = json.loads(rotated.stdout)
    assert (first["last"], second["first"], second["signs"]) == (1, 2, True)
    assert (retired.returncode, retired.stderr) == (0, "")
    assert "compromised since entry 0" in retired.stdout
    assert (verified.returncode, verified.stderr) == (0, "")
    assert listed.stdout == retired.stdout


async def test_without_a_projector_the_change_waits_for_one(tmp_path: Path) -> None:
    Signer.of(tmp_path / "head.key").publish(tmp_path / "head.pub")

    done = await joulie("keys", "rotate", "--wait", "100ms", "--data", str(tmp_path))

    assert (done.returncode, done.stdout) == (2, "")
    assert "no projector has taken it up within 0.1 s" in done.stderr
    assert (tmp_path / "head.key.next").exists()
