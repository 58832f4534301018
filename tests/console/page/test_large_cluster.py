"""The page over 5,000 nodes."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from playwright.async_api import Page, expect

from browser import accessibility_faults
from joulie_bus.testing import eco, node_seen, performance, power
from joulie_console.testing import ConsoleHarness

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]

NODES = 5_000
NAMES = [f"node-{number:04d}" for number in range(NODES)]
BATCH = 1_000
ELEMENTS = "document.querySelectorAll('*').length"
FRAMES = """count => new Promise(done => {
  const step = left => left ? requestAnimationFrame(() => step(left - 1)) : done(true);
  step(count);
})"""


async def fill(harness: ConsoleHarness) -> None:
    for at in range(0, NODES, BATCH):
        part = NAMES[at : at + BATCH]
        await harness.publish(*(node_seen(name, rack=f"r{int(name[5:]) // 40}") for name in part))
    await harness.publish(*map(performance, NAMES[:100]), *map(eco, NAMES[100:200]))
    await harness.publish(*(power(name, 200) for name in NAMES[:100]))


async def test_every_node_is_reached_in_a_cluster_of_5000(
    page: Page, complaints: list[str], new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await fill(harness)
        await page.goto(f"{harness.url}/?group=rack&colour=class")
        await expect(page.locator("#totals")).to_contain_text("5,000")
        await page.locator("#map").press("End")
        await expect(page.locator("#map-status")).to_contain_text("node-4999: unknown")
        await page.locator("#map").press("Home")
        await expect(page.locator("#map-status")).to_contain_text("node-0000: performance")
        await page.evaluate(FRAMES, 5)
        elements = await page.evaluate(ELEMENTS)
        faults = await accessibility_faults(page, "color-contrast", "target-size")
        await page.locator("#map").press("Enter")
        await expect(page.locator("#detail-title")).to_have_text("node-0000")
        await page.keyboard.press("Escape")
        await page.click("#as-table")
        await expect(page.locator("#table-view .pager")).to_contain_text("1 to 50 of 5,000")

        assert (faults, complaints) == ([], [])
        assert elements < 1_000  # a map of nodes is one element
