"""The past is a mode: it says of when it is, has no figure of now, and one key leaves it."""

import re
import time

import pytest
from playwright.async_api import Page, expect

from browser import accessibility_faults
from console_kit import ConsoleHarness

pytestmark = pytest.mark.anyio
FRAME = "getComputedStyle(document.body, '::after').borderTopStyle"
OF_WHEN = re.compile(r"^As it was at .*\d\d:\d\d:\d\d \(position 8\)\.$")


async def in_the_past(page: Page, harness: ConsoleHarness, query: str = "?at=8") -> None:
    await page.goto(f"{harness.url}/{query}")
    await expect(page.locator("#past")).to_have_text(OF_WHEN)


async def test_the_past_has_a_frame_and_its_time_and_no_figure_of_now(
    page: Page, complaints: list[str], scenario: ConsoleHarness
) -> None:
    await page.goto(scenario.url)
    await expect(page.locator("#top-line")).to_contain_text("position")
    without = await page.evaluate(FRAME)
    newest = await page.locator("#top-line .position").inner_text()
    await in_the_past(page, scenario)
    await expect(page.locator("#totals")).to_contain_text("0 draining")
    shown = await page.locator("body").inner_text()

    assert (without, await page.evaluate(FRAME)) == ("none", "double")
    assert newest not in shown
    assert "All components run" not in shown
    assert "no fresh power reading" not in shown  # the health is of now
    assert await accessibility_faults(page) == []
    assert complaints == []


async def test_the_chart_of_the_past_ends_there(page: Page, scenario: ConsoleHarness) -> None:
    now_ms = int(time.time() * 1000)
    points = [[now_ms - (60 - at) * 10_000, at, 100 + at * at, 5000] for at in range(60)]
    await page.route("**/v1/power*", lambda route: route.fulfill(json={"points": points}))
    await in_the_past(page, scenario)

    await expect(page.locator(".power-card .chart-feet")).to_contain_text("measured 0.16 kW")


async def test_escape_closes_the_panel_first_and_then_leaves_the_past(
    page: Page, scenario: ConsoleHarness
) -> None:
    await in_the_past(page, scenario, "?node=n1&at=8")
    await expect(page.locator("#detail")).to_contain_text("Transitions")
    await page.keyboard.press("Escape")
    await expect(page.locator("#detail")).to_have_count(0)
    await expect(page.locator("#past")).to_have_text(OF_WHEN)
    await page.keyboard.press("Escape")

    await expect(page.locator("#health")).to_be_visible()
    await expect(page).to_have_url(f"{scenario.url}/")


async def test_the_button_of_the_past_leaves_it(page: Page, scenario: ConsoleHarness) -> None:
    await in_the_past(page, scenario)
    await page.get_by_role("button", name="Return to now").click()

    await expect(page.locator("#totals")).to_contain_text("1 draining")


@pytest.mark.parametrize("query", ["?at=999999999", "?at=999999999&page=energy&node=n1"])
async def test_a_position_that_does_not_exist_says_so_and_escape_returns(
    page: Page, scenario: ConsoleHarness, query: str
) -> None:
    await page.goto(f"{scenario.url}/{query}")
    await expect(page.locator("#past")).to_contain_text("There is no position 999999999")
    await expect(page.locator("#content")).to_contain_text("Nothing of that position can be shown")
    await expect(page.locator("#totals")).to_have_count(0)
    await page.locator("body").press("Escape")
    await page.locator("body").press("Escape")

    await expect(page.locator("#health")).to_be_visible()


async def test_a_time_before_the_log_is_said_in_a_line(
    page: Page, scenario: ConsoleHarness
) -> None:
    await page.goto(f"{scenario.url}/?time=2001-01-01T00:00:00Z")

    await expect(page.locator("#notice")).to_contain_text("There is no state at 2001-01-01")
    await expect(page.locator("#totals")).to_contain_text("1 draining")


@pytest.mark.parametrize("name", ["pending", "energy"])
async def test_pages_of_now_show_nothing_in_the_past(
    page: Page, scenario: ConsoleHarness, name: str
) -> None:
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    await in_the_past(page, scenario, f"?page={name}&at=8")
    await expect(page.locator("#content")).to_contain_text("This page is of now only")

    assert [url for url in asked if f"/v1/{name}" in url] == []
    assert await accessibility_faults(page, "color-contrast", "target-size") == []
