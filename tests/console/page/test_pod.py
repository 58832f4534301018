"""A pod: a timeline of its attempts with their terms, in the words of `joulie explain`."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from playwright.async_api import Page, expect

from browser import accessibility_faults
from bus_kit import ask, bound, eco, hardware, node_seen, pending, power
from console_kit import ConsoleHarness, told_by
from joulie_bus.events import PodFinished

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
MOMENTS = "#detail .timeline > li"


async def lived(harness: ConsoleHarness) -> None:
    """A pod that one node refused, that was placed at its second attempt, and that has ended."""
    pod = ask("web", performance=True)
    for name in ("n1", "n2"):
        await harness.publish(node_seen(name), hardware(name), power(name, 100))
    await harness.publish(eco("n2"), pending("web", performance=True))
    await harness.filter(pod, ["n2"])
    await harness.decide(pod)
    await harness.publish(bound("web", "n1", performance=True))
    harness.entries += 1  # the outcome, which the projector writes


async def test_a_timeline_has_each_attempt_its_terms_and_the_end_in_the_words_of_explain(
    page: Page, complaints: list[str], new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await lived(harness)
        await harness.publish(PodFinished(uid="web"))
        await page.goto(f"{harness.url}/?pod=web")
        await expect(page.locator(MOMENTS)).to_have_count(4)
        told = await page.locator(f"{MOMENTS} > p .name").all_inner_texts()
        head = await page.locator("#detail .terms th[scope=col]").all_inner_texts()
        rows = await page.locator("#detail .terms tbody tr").all_inner_texts()
        faults = await accessibility_faults(page)
        printed = await told_by(harness, "explain", "web")

    refused, placed, runs, ended = told
    assert refused.startswith("Attempt 1 of 2: team/web is refused on the only node: ")
    assert placed.startswith("Attempt 2 of 2: ")
    assert (runs, ended) == ("team/web runs on n1, ranked 1.", "team/web has finished.")
    assert [text for text in told if text not in printed] == []
    (line,) = (each for each in printed.splitlines() if each.startswith("  *n1"))
    assert rows[0].split() == [cell for cell in line.split() if cell != "|"]
    assert head[0] == "node"
    assert (faults, complaints) == ([], [])


async def test_a_pod_that_waits_says_so_and_a_deleted_one_keeps_its_timeline(
    page: Page, new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), pending("waits"))
        await harness.decide(ask("waits"))
        await harness.decide(ask("gone"))
        await page.goto(f"{harness.url}/?pod=waits")
        last = page.locator(MOMENTS).last
        await expect(last).to_contain_text("team/waits waits for a node.")
        await expect(last).to_contain_text("time not known")
        await page.goto(f"{harness.url}/?pod=gone")
        await expect(page.locator(MOMENTS).last).to_contain_text("The pod was deleted")
        await expect(page.locator(MOMENTS)).to_have_count(2)


async def test_an_entry_of_the_timeline_opens_its_decision(
    page: Page, scenario: ConsoleHarness
) -> None:
    await page.goto(f"{scenario.url}/?pod=heavy")
    await page.locator(f"{MOMENTS} a").first.click()

    await expect(page.locator("#detail-title")).to_contain_text("Entry ")
