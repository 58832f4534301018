"""What the page and the terminal show is true, on a machine that has no time to spare.

TRUTH_SECONDS=120 TRUTH_NODES=1000 .venv/bin/python -m pytest -m drill -s tests/cli/test_truth.py
"""

import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from joulie_bus.broker.embedded import address_within
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime.settings import BusSettings
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Subjects
from joulie_demo import Running, demo
from joulie_projections.component.data_directory import DataDirectory
from truth import UNKNOWN_SHARE, Judge, Witness, report

SECONDS = float(os.environ.get("TRUTH_SECONDS", "600"))
NODES = os.environ.get("TRUTH_NODES", "5000")
BOOT_S = 300.0
BUSY = "while True: pass"

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(SECONDS * 2 + BOOT_S)]


@contextlib.contextmanager
def busy_loops(count: int) -> Generator[None, None, None]:
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


async def until_known(running: Running) -> DataDirectory:
    """Until the demo counts its own time: all nodes are known, and decisions are made."""
    deadline = time.monotonic() + BOOT_S
    while time.monotonic() < deadline:
        assert running.process.poll() is None, running.process.communicate()
        with contextlib.suppress(Exception):
            if running.counts().answers > 10:
                return running.data
        await asyncio.sleep(1)
    raise AssertionError("no decision was made")


async def test_every_age_name_and_kilowatt_is_true_beside_two_busy_loops(tmp_path: Path) -> None:
    with demo(tmp_path / "data", "--nodes", NODES) as running:
        data = await until_known(running)
        ran = data.running()
        assert ran is not None
        address = address_within(data.path, ran.nats_url, Role.ADMIN)
        async with JetStreamLog.open(address, "witness") as bus:
            witness = Witness(bus, Subjects(BusSettings().cluster), data)
            judge = Judge(witness, data, ran.endpoints["console"])
            async with witness.watching():
                await judge.until_ready()
                with busy_loops(2):
                    await judge.run(SECONDS)
        running.end()

    print(
        f"{judge.checked} statements in {judge.looks} answers ({judge.unanswered} "
        "more did not come in two minutes), the oldest "
        f"view {judge.worst_ms / 1000:.1f} s behind"
    )
    print(f"a list of decisions took {statistics.median(judge.list_ms):.0f} ms (median)")
    excused = witness.excused_ms
    print(
        f"{len(excused)} ages were up to {max(excused, default=0) / 1000:.1f} s larger than the "
        "truth while their component or the projector had no CPU"
    )
    print(f"{judge.unknown} of {judge.ages} ages were unknown")
    print(report(judge.false))
    assert judge.false == [], report(judge.false[:20])
    assert judge.unknown <= UNKNOWN_SHARE * judge.ages
