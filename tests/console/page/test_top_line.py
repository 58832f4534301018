"""The line above everything: how everything is, in the sentence that `joulie status` has, too."""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from browser import accessibility_faults, held
from bus_kit import hardware, node_seen, plan_made, power
from console_kit import ConsoleHarness, console_harness, running_console, told_by
from joulie_bus.broker.embedded import Embedded
from joulie_bus.runtime.ports import free_port

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
RED = """() => {
  const probe = document.querySelector('#top-line').appendChild(document.createElement('i'));
  probe.style.color = 'var(--bad)';
  const red = getComputedStyle(probe).color;
  probe.remove();
  return [...document.querySelectorAll('body *')]
    .filter(each => !each.closest('#top-line'))
    .filter(each => {
      const { color, backgroundColor, borderTopColor } = getComputedStyle(each);
      return [color, backgroundColor, borderTopColor].includes(red);
    })
    .map(each => each.outerHTML.slice(0, 80));
}"""
SHAPE = """() => {
  const { borderRadius, clipPath, backgroundColor } =
    getComputedStyle(document.querySelector('#top-line .state'));
  return `${borderRadius} ${clipPath} ${backgroundColor === 'rgba(0, 0, 0, 0)'}`;
}"""


async def shape(page: Page) -> str:
    found: str = await page.evaluate(SHAPE)
    return found


async def well(harness: ConsoleHarness) -> None:
    await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100), plan_made("p1"))


async def test_all_is_well_in_one_calm_sentence_that_the_command_has_too(
    page: Page, complaints: list[str], new_harness: NewHarness
) -> None:
    calm = re.compile(r"All components run; data of \d+ s ago\.$")
    async with new_harness() as harness:
        await well(harness)
        await page.goto(harness.url)
        await expect(page.locator("#health")).to_have_text(calm)
        await expect(page.locator("#top-line")).to_have_class("top-line well")
        await expect(page.locator("#also")).to_have_count(0)

        assert calm.search((await told_by(harness, "status")).splitlines()[0])
        assert (await accessibility_faults(page, "color-contrast"), complaints) == ([], [])


async def test_a_warning_says_since_when_and_what_it_means_and_no_other_part_is_red(
    page: Page, scenario: ConsoleHarness
) -> None:
    await page.goto(scenario.url)
    text = "1 of 3 nodes have no fresh power reading: the power in view is that of the others"
    await expect(page.locator("#health")).to_contain_text(text)
    await expect(page.locator("#top-line")).to_have_class("top-line warning")

    assert text in (await told_by(scenario, "status")).splitlines()[0]
    assert await page.evaluate(RED) == []


async def test_the_worst_is_first_and_the_others_are_one_click_away(
    page: Page, new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"))  # no plan, and no reading at all
        await page.goto(harness.url)
        await expect(page.locator("#health")).to_contain_text("1 of 1 nodes have no fresh")
        await expect(page.locator("#top-line")).to_have_class("top-line serious")
        await page.locator("#also summary").click()
        await expect(page.locator("#also li")).to_contain_text("The operator's last plan: never.")

        assert await accessibility_faults(page, "color-contrast", "target-size") == []


async def test_before_the_first_answer_the_line_is_grey_and_a_lost_console_is_not(
    page: Page, empty_streams: Embedded, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{free_port()}"
    async with console_harness(empty_streams, tmp_path) as harness:
        await well(harness)
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            async with held(page, re.compile("/v1/stream")):
                await page.goto(f"http://{at}/")
                await expect(page.locator("#health")).to_have_text("Not connected yet.")
                await expect(page.locator("#top-line")).to_have_class("top-line unknown")
                ring = await shape(page)
            await expect(page.locator("#top-line")).to_have_class("top-line well")
            disc = await shape(page)
        await expect(page.locator("#health")).to_contain_text(
            re.compile(r"The connection is lost \(.+\): all figures are of .*\d\d:\d\d")
        )
        square = await shape(page)

        assert len({ring, disc, square}) == 3
        assert await page.evaluate(RED) == []


async def test_a_stopped_projector_is_named_with_since_when_and_what_it_means(
    page: Page, empty_streams: Embedded, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{free_port()}"
    projecting = console_harness(empty_streams, tmp_path)
    await well(await projecting.__aenter__())
    async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
        await page.goto(f"http://{at}/")
        await expect(page.locator("#top-line")).to_have_class("top-line well")
        await projecting.__aexit__(None, None, None)  # the projector ends with it
        await expect(page.locator("#health")).to_have_text(
            re.compile(
                r"The console has received no message of the projector for \d+ s: .* "
                r"This page is up to \d+ s behind the cluster\."
            )
        )
        assert await page.evaluate(RED) == []
