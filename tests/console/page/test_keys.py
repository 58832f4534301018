"""Keys that work anywhere: `/` searches, `?` lists the keys."""

import pytest
from playwright.async_api import Page, expect

from browser import accessibility_faults
from console_kit import ConsoleHarness

pytestmark = pytest.mark.anyio


async def opened(page: Page, harness: ConsoleHarness, query: str = "") -> None:
    await page.goto(f"{harness.url}/{query}")
    await expect(page.locator("#top-line")).to_contain_text("position")


@pytest.mark.parametrize("query", ["", "?page=energy", "?at=8", "?node=n1", "?at=999999999"])
async def test_a_slash_searches_from_anywhere_and_enter_opens(
    page: Page, scenario: ConsoleHarness, query: str
) -> None:
    await opened(page, scenario, query)
    await page.keyboard.press("/")
    await expect(page.locator("#q")).to_be_focused()
    await expect(page.locator("#q")).to_have_value("")
    if "999" in query:
        return  # nothing is found at a position that does not exist
    await page.keyboard.type("n2")
    await page.keyboard.press("Enter")

    await expect(page.locator("#detail-title")).to_have_text("n2")


async def test_a_slash_that_is_typed_is_text(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario)
    await page.locator("#q").press_sequentially("team/heavy?")

    await expect(page.locator("#q")).to_have_value("team/heavy?")
    await expect(page.locator("#help")).to_have_count(0)


async def test_a_question_mark_lists_the_keys_and_escape_closes_only_the_list(
    page: Page, complaints: list[str], scenario: ConsoleHarness
) -> None:
    await opened(page, scenario, "?at=8")
    await page.keyboard.press("?")
    await expect(page.locator("#help")).to_contain_text("find a pod or a node, from anywhere")
    assert await accessibility_faults(page) == []
    await page.keyboard.press("Escape")
    await expect(page.locator("#help")).to_have_count(0)
    await expect(page.locator("#past")).to_be_visible()  # one key, one thing
    await page.locator("#keys").click()
    await page.get_by_role("button", name="Close").click()
    await expect(page.locator("#help")).to_have_count(0)

    assert complaints == []
