"""The live map in a real Chromium: its nodes and values are those of now."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from playwright.async_api import Page, expect

import console_kit as harness_module
from bus_kit import hardware, node_seen, power
from console_kit import ConsoleHarness
from joulie_bus.events import NodeGone
from joulie_console.stream import poller

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]


async def opened(page: Page, harness: ConsoleHarness) -> None:
    await page.goto(f"{harness.url}/")
    await expect(page.locator("#top-line")).to_contain_text("position")
    await expect(page.locator("#map")).to_be_visible()


async def expect_node(page: Page, key: str, text: str) -> None:
    """The node that a key leads to, as the page describes it."""
    shown = page.locator("#map-status")
    for _ in range(200):
        await page.locator("#map").press(key)
        if text in (await shown.text_content() or ""):
            return
        await page.wait_for_timeout(50)
    await expect(shown).to_contain_text(text)


@pytest.mark.long
async def test_a_node_in_the_row_of_a_removed_one_has_its_own_name(
    page: Page, complaints: list[str], new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        for name, watts in (("spot-a", 111), ("stays", 222)):
            await harness.publish(node_seen(name), hardware(name), power(name, watts))
        await opened(page, harness)
        await expect_node(page, "Home", "spot-a: unknown, headroom 85 %, 111 W")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))

        await harness.publish(NodeGone(node="spot-a"))
        await expect_node(page, "Home", "stays")
        await harness.publish(node_seen("z-spot"), hardware("z-spot"), power("z-spot", 333))
        await expect_node(page, "End", "z-spot: unknown, headroom 54 %, 333 W")
        await expect_node(page, "Home", "stays: unknown, headroom 69 %, 222 W")

        assert [url for url in asked if "/v1/map" in url] == []  # the changes were enough
        assert complaints == []


@pytest.mark.long
async def test_a_reading_that_becomes_stale_leaves_the_map_while_no_fact_arrives(
    page: Page, new_harness: NewHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness_module, "STALENESS_S", 4.0)
    monkeypatch.setattr(poller, "REFRESH_S", 0.2)
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 111))
        await opened(page, harness)
        position = harness.view.position
        await expect_node(page, "Home", "n1: unknown, headroom 86 %, unknown")

        assert harness.view.position == position
