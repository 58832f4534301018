"""What waits in the spool of an extender is the same on every surface of a console, and unknown on
each once the extender is silent."""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest
from playwright.async_api import Page, expect

from bus_kit import CLUSTER, node_seen
from console_kit import ConsoleHarness, told_by
from joulie.client import ConsoleClient
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.spool_report import SpoolReport

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
REPORT = SpoolReport(replica="extender-0", waiting=12, oldest_ms=20_000)


async def reporting(harness: ConsoleHarness) -> None:
    while True:
        data = msgspec.msgpack.encode(REPORT)
        await harness.bus.send_live(CLUSTER.spool(REPORT.replica), data)
        await asyncio.sleep(0.2)


async def test_what_waits_in_a_spool_is_on_every_surface_and_unknown_without_a_report(
    page: Page, new_harness: NewHarness
) -> None:
    async with new_harness() as harness, ConsoleClient(harness.url) as console:
        await harness.publish(node_seen("n1"))
        await page.goto(harness.url)
        totals, body = page.locator("#totals"), page.locator("body")
        await expect(totals).to_contain_text("it is not known how many wait in spools")
        async with background(reporting(harness), "reports"):
            await expect(totals).to_contain_text("12 wait in spools", timeout=30_000)
            await expect(body).to_contain_text("12 entries of extender-0 are not at the broker")
            text, (spool,) = await told_by(harness, "status"), (await console.status()).spools
            assert (await console.cluster()).spooled == spool.waiting == 12
            assert "spool        12 entries wait in that of extender-0, the oldest for" in text
            (stale,) = json.loads(await told_by(harness, "status", "-o", "json"))["spools"]
            assert (stale["name"], stale["waiting"]) == ("extender-0", 12)
        await expect(totals).to_contain_text("it is not known how many wait", timeout=30_000)
        text, (spool,) = await told_by(harness, "status"), (await console.status()).spools
        assert (await console.cluster()).spooled is spool.waiting is None
        assert "spool        of extender-0: not known" in text
        assert re.search(r"STALE +extender-0 has not reported its spool for", text)
