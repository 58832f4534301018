"""The overview: what happened as sentences, changes only, and a map by what the preset is about."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from msgspec.structs import replace
from playwright.async_api import Page, expect

from bus_kit import (
    ask,
    asleep,
    bound,
    caps,
    eco,
    hardware,
    node_seen,
    performance,
    plan_made,
    power,
    waking,
)
from console_kit import ConsoleHarness, told_by
from joulie_operator.planning.sleep import SLEEPING_POLICY

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
SAVES = replace(plan_made("p2"), policy=SLEEPING_POLICY, changes=2, settings={"preset": "savings"})


async def sentences(page: Page, where: str) -> list[str]:
    found: list[str] = await page.locator(f"{where} .text > .name").all_inner_texts()
    return found


async def some_nodes(harness: ConsoleHarness) -> None:
    for name in ("n1", "n2", "n3", "n4"):
        await harness.publish(node_seen(name, cores=8), hardware(name), performance(name))
    await harness.publish(power("n1", 150))


async def test_changes_are_sentences_of_the_commands_and_empty_plans_are_not_shown(
    page: Page, new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await some_nodes(harness)
        await harness.publish(replace(plan_made("p1"), changes=0))
        slept = replace(asleep("n2"), because="it is empty")
        await harness.publish(SAVES, slept, caps("n3", cpu=60))
        await page.goto(harness.url)
        await expect(page.locator("#happened")).to_contain_text("n2 falls asleep")
        woken = replace(waking("n2"), because="pods wait for it")
        await harness.publish(woken, replace(plan_made("p3"), changes=0))
        await expect(page.locator("#happened .line").first).to_contain_text("n2 wakes up")
        told = await sentences(page, "#happened")
        printed = await told_by(harness, "plans")

    assert told[:3] == [
        "n2 wakes up: pods wait for it.",
        "n3 gets caps: CPU 60 %, GPU none.",
        "n2 falls asleep: it is empty.",
    ]
    assert [text for text in told if text.startswith("Plan")] == []  # its steps say it
    assert [text for text in told if text not in printed] == []
    assert [text for text in told if not text.endswith(".")] == []


async def test_a_pod_that_every_node_refused_is_told_once_with_the_reason(
    page: Page, new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await some_nodes(harness)
        await harness.publish(eco("n4"))
        for _ in range(2):
            await harness.filter(ask("fast", performance=True), ["n4"])
        await page.goto(harness.url)
        told = page.locator("#happened .filter")
        await expect(told).to_have_count(1)
        await expect(told).to_contain_text("team/fast is refused on the only node: ")
        (text,) = await sentences(page, "#happened .filter")
        document = json.loads(await told_by(harness, "decisions", "-o", "json"))

    assert text in [each["sentence"] for each in document["items"]]


async def test_with_savings_the_map_shows_sleep_and_load_and_what_keeps_a_node_awake(
    page: Page, complaints: list[str], new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await some_nodes(harness)
        await harness.publish(SAVES, asleep("n2"), waking("n3"), bound("web", "n1", cores=8))
        await page.goto(harness.url)
        for state in ("asleep", "waking up", "filling", "full: 90 % or more"):
            await expect(page.locator("#legend")).to_contain_text(state)
        await page.locator("#map").focus()
        await page.keyboard.press("ArrowRight")
        status = page.locator("#map-status")
        await expect(status).to_contain_text("100 % requested. Awake: one pod runs here.")
        await page.keyboard.press("ArrowRight")
        await expect(status).to_contain_text("n2: performance, asleep")
        printed = await told_by(harness, "twin", "n1")

        assert "awake      one pod runs here" in printed
        assert complaints == []


async def test_without_sleep_the_map_shows_headroom(page: Page, scenario: ConsoleHarness) -> None:
    await page.goto(scenario.url)

    await expect(page.locator("#legend")).to_contain_text("all of the cap is free")


async def test_of_an_empty_cluster_the_page_says_what_is_missing(
    page: Page, complaints: list[str], new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await page.goto(harness.url)
        await expect(page.locator("#map-empty")).to_have_text("No nodes yet.")
        await expect(page.locator("#happened")).to_contain_text("No events yet.")
        await expect(page.locator("#decisions")).to_contain_text("No decisions yet.")

        assert complaints == []
