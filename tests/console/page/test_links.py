"""Links to a pod, a node, a moment and a page: they survive a reload, and the back button works."""

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

import pytest
from playwright.async_api import Page, Route, expect

from joulie_bus.testing import (
    ask,
    bound,
    eco,
    hardware,
    node_seen,
    pending,
)
from joulie_console.testing import ConsoleHarness

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]


async def opened(page: Page, harness: ConsoleHarness, query: str = "") -> None:
    await page.goto(f"{harness.url}/{query}")
    await expect(page.locator("#age")).to_contain_text("position")


async def test_a_link_restores_the_selection_also_after_a_reload(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario, "?at=13&colour=class&group=class&node=n2&view=table")
    for _ in range(2):
        await expect(page.locator("#table-view")).to_contain_text("n3")
        await expect(page.locator("#detail .machine .now")).to_have_text("eco")
        await expect(page.locator("#colour")).to_have_value("class")
        await expect(page.locator("#when")).to_contain_text("position 13")
        await page.reload()


async def test_a_link_names_a_pod_by_its_name(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario, "?pod=team/heavy")

    await expect(page.locator("#detail-title")).to_have_text("team/heavy")
    await expect(page.locator("#detail")).to_contain_text("kube-scheduler put it on n3")


async def test_a_link_names_a_moment_by_its_time(page: Page, scenario: ConsoleHarness) -> None:
    position = scenario.commits()[0].p_to
    at = scenario.commits()[0].committed_at / 1e9
    moment = datetime.fromtimestamp(at + 1e-6, UTC).isoformat().replace("+00:00", "Z")
    await opened(page, scenario, f"?time={moment}")

    await expect(page).to_have_url(re.compile(r"\?at=\d+$"))
    await expect(page.locator("#when")).to_contain_text(f"position {position}")


async def test_the_back_button_returns_through_pages_and_details(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    await page.get_by_role("link", name="Pending pods").click()
    await page.get_by_role("link", name="team/waits").click()
    await expect(page.locator("#detail-title")).to_have_text("team/waits")
    await page.go_back()
    await expect(page.locator("#detail")).to_be_hidden()
    await expect(page.locator("#pending-title")).to_be_visible()
    await page.go_back()

    await expect(page.locator("#map-title")).to_be_visible()
    await expect(page).to_have_url(f"{scenario.url}/")


async def test_a_link_opens_in_a_tab_of_its_own(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario, "?view=table")
    link = page.locator("#table-view").get_by_role("link", name="n2")
    async with page.context.expect_page() as waiting:
        await link.click(modifiers=["ControlOrMeta"])
    other = await waiting.value

    await expect(other.locator("#detail-title")).to_have_text("n2")
    await expect(page.locator("#detail")).to_be_hidden()


async def test_placeholders_name_what_is_loading(page: Page, scenario: ConsoleHarness) -> None:
    released = asyncio.Event()

    async def hold(route: Route) -> None:
        await released.wait()
        await route.abort()

    await page.route(re.compile("/v1/"), hold)
    await page.goto(f"{scenario.url}/?node=n1")
    await expect(page.get_by_text("Loading the map of nodes.")).to_be_attached()
    await expect(page.get_by_text("Loading the details.")).to_be_attached()
    await expect(page.locator("#totals[aria-busy=true] .figure")).to_have_count(6)
    await expect(page.locator("#age")).to_have_text("connecting")
    released.set()
    await page.unroute_all(behavior="wait")


async def test_pending_pods_have_a_reason_and_advice(page: Page, new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), eco("n1"))
        await harness.publish(pending("fast", performance=True), pending("unseen"))
        await harness.filter(ask("fast", performance=True))
        await opened(page, harness, "?page=pending")
        rows = page.locator("main tbody tr")
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text("refused: 1 of 1 nodes refused")
        await expect(rows.first).to_contain_text("STATIC_HP_FRAC")
        await expect(rows.last).to_contain_text("not asked")
        await rows.first.get_by_role("link", name="entry 2").click()
        await expect(page.locator("#detail-title")).to_have_text("Entry 2: filter")
        await harness.publish(bound("unseen", "n1"))
        await expect(rows).to_have_count(1, timeout=15_000)  # the page stays up to date


async def test_energy_is_shown_with_units_and_the_values_under_the_keys(
    page: Page, complaints: list[str], scenario: ConsoleHarness
) -> None:
    await opened(page, scenario, "?page=energy&hours=6&by=node")
    await expect(page.locator("#energy-figures")).to_contain_text("All meters")
    await expect(page.locator("main tbody tr")).to_have_count(2)
    await expect(page.locator("main tbody tr").first).to_contain_text("n2")
    chart = page.get_by_role("group", name="Average power of each interval")
    last = await chart.get_by_role("status").inner_text()
    await chart.press("Home")
    await expect(chart.get_by_role("status")).not_to_have_text(last)
    await expect(chart.get_by_role("status")).to_contain_text(re.compile(r"all meters \S+ W"))
    await page.select_option("#by", "namespace")
    await expect(page.locator("main tbody")).to_contain_text("free: what no pod occupies")
    await expect(page).to_have_url(f"{scenario.url}/?page=energy&hours=6")

    assert complaints == []
