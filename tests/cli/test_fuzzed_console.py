"""A console beside a running demo is sent random and mutated requests: it answers each without an
error of its own, holds a bounded size, is not started again, and answers others as before.

JOULIE_DRILL_SECONDS sets for how long in the drill (600), JOULIE_DRILL_SEED what is sent.
"""

import asyncio
import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fuzzing import Fuzzer, document_of
from joulie_demo import Running, demo
from joulie_projections.component.data_directory import DataDirectory

SECONDS = float(os.environ.get("JOULIE_DRILL_SECONDS", "600"))
SEED = int(os.environ.get("JOULIE_DRILL_SEED", "1"))
ENTRY = 5
GROWTH_MIB = 96  # after the first third; the history of the demo grows, too
PATIENCE_S = 300.0
# Refused for a while, with the time after which to ask again; docs/console.md describes it.
BUSY = "503"


class Before(NamedTuple):
    """What the console answers about the past, which nothing changes."""

    decision: Any
    status: list[str]  # its fields


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_console_that_is_sent_random_requests_for_some_seconds_answers_as_before(
    tmp_path: Path,
) -> None:
    fuzzed(tmp_path, 15)


@pytest.mark.drill
@pytest.mark.timeout(1800)
def test_a_console_that_is_sent_random_requests_for_minutes_answers_as_before(
    tmp_path: Path,
) -> None:
    fuzzed(tmp_path, SECONDS)


def fuzzed(data: Path, seconds: float) -> None:
    with demo(data, "--nodes", "20", "--seed", "3") as site:
        site.wait_until(lambda: site.counts().answers >= 20, PATIENCE_S)
        found = site.data.running()
        assert found is not None
        url = found.endpoints["console"]
        before = past(url)
        document = document_of(answer(f"{url}/openapi.json"))
        names = names_of(before.decision)
        fuzzer = Fuzzer(url.removeprefix("http://"), document, names, SEED)
        sizes = asyncio.run(under_fuzz(site, fuzzer, seconds))
        after = past(url)
        ended = site.data.running()
        log = (site.data.logs / "console.log").read_text()
        site.end()
    print(dict(fuzzer.statuses), "streams", fuzzer.streams, "MiB", sizes)

    assert [each for each in fuzzer.errors if each[0] != BUSY] == []
    assert after == before
    assert ended is not None
    assert ended.restarts["console"] == 0
    assert "Traceback" not in log
    assert "task_failed" not in log
    assert sizes[-1] - sizes[len(sizes) // 3] < GROWTH_MIB
    assert fuzzer.statuses["200"] > 0
    assert fuzzer.statuses["400"] > 0
    assert fuzzer.streams > 0


async def under_fuzz(site: Running, fuzzer: Fuzzer, seconds: float) -> list[float]:
    """The memory of the console, again and again."""
    sizes = []
    task = asyncio.create_task(fuzzer.run())
    for _ in range(15):
        await asyncio.sleep(seconds / 15)
        assert not task.done(), task
        sizes.append(resident_mib(site.data))
    task.cancel()
    await asyncio.wait([task])
    return sizes


def resident_mib(data: DataDirectory) -> float:
    found = data.running()
    assert found is not None
    pages = int(Path(f"/proc/{found.parts['console']}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def past(url: str) -> Before:
    entry = json.loads(answer(f"{url}/v1/decisions/{ENTRY}"))
    return Before(entry["decision"], sorted(json.loads(answer(f"{url}/v1/cluster"))))


def names_of(decision: dict[str, Any]) -> list[str]:
    """What paths and queries can name."""
    return [str(decision[name]) for name in ("entry", "id", "pod_uid", "namespace", "name")]


def answer(url: str) -> bytes:
    """A console without CPU takes its time, and refuses what it cannot answer within 20 s."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
                body: bytes = reply.read()
            return body
        except urllib.error.HTTPError as error:
            if str(error.code) != BUSY or time.monotonic() > until:
                raise
            time.sleep(1)
