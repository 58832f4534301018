"""Each component is stopped in turn, and the page says which, since when, and what that means.

    .venv/bin/python -m pytest -m drill -s tests/console/page/test_lost_parts.py

LOST_SHOTS=DIR keeps a picture of the page for each.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.async_api import Page, expect

import joulie_demo
from browser import new_context, running_chromium

pytestmark = [pytest.mark.anyio, pytest.mark.drill, pytest.mark.timeout(1800)]
SHOTS = os.environ.get("LOST_SHOTS", "")
PATIENCE_MS = 360_000  # a plan is missed after three minutes


class Lost(NamedTuple):
    part: str  # of the supervisor
    since: str
    means: str


LOST = [
    Lost("ledger", r"of the last \d+ s", "figures of energy end before that"),
    Lost("extender", r"last decision was \d+ s ago", "list of decisions ends there"),
    Lost("projector", r"no message of the projector for \d+ s", "behind the cluster"),
    Lost("nats-server", r"no message of the projector for \d+ s", "the broker may"),
    Lost("simulator", r"\d+ of \d+ nodes", "the power in view is that of the others"),
    Lost("operator", r"last plan: \d+ s ago", "Profiles and caps stay as they are"),
    Lost("console", r"all figures are of .*\d\d:\d\d", "The console has sent nothing for"),
]


@contextlib.asynccontextmanager
async def stopped(running: joulie_demo.Running, part: str) -> AsyncGenerator[None, None]:
    """The process exists and does nothing, so that its supervisor starts no other one."""
    process = running.pids()[part]
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


async def said_of(page: Page, lost: Lost) -> None:
    line = page.locator("#top-line")
    for words in (lost.since, lost.means):
        await expect(line).to_contain_text(re.compile(words), timeout=PATIENCE_MS)
    print(f"{lost.part}: {await line.inner_text()}", flush=True)
    if SHOTS:
        await page.screenshot(path=f"{SHOTS}/{lost.part}.png")


async def test_the_page_says_which_component_is_gone_since_when_and_what_that_means(
    tmp_path: Path,
) -> None:
    words = ("--nodes", "50", "--pods-per-second", "2")
    with joulie_demo.demo(tmp_path / "data", *words, PRESET="savings") as running:
        running.await_decisions(10)
        found = running.data.running()
        assert found is not None
        async with running_chromium() as browser, new_context(browser) as context:
            page = await context.new_page()
            await page.goto(found.endpoints["console"])
            for lost in LOST:
                await expect(page.locator("#health")).to_contain_text(
                    "All components run", timeout=PATIENCE_MS
                )
                async with stopped(running, lost.part):
                    await said_of(page, lost)
                await asyncio.sleep(1)
        running.end()
