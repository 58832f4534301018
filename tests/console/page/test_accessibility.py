"""The page for all of its users: axe-core's rules, keys, names that mislead, 5,000 nodes."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from msgspec.structs import replace
from playwright.async_api import Page, expect
from playwright.async_api import TimeoutError as PageTimeout

from browser import accessibility_faults
from bus_kit import ask, eco, hardware, node_seen, pending, performance, power
from console_kit import ConsoleHarness

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]

LOOKS = [
    "",
    "?view=table&decision=3",
    "?node=n3&colour=class",
    "?pod=heavy&at=18",
    "?page=pending",
    "?page=energy&hours=6",
]
PHONE, WALL = 390, 2560
SIZES = ("target-size", "scrollable-region-focusable")


async def opened(page: Page, harness: ConsoleHarness, query: str = "") -> None:
    await page.goto(f"{harness.url}/{query}")
    await expect(page.locator("#top-line")).to_contain_text("position")


async def loaded(page: Page, harness: ConsoleHarness, query: str) -> None:
    """The page with all of its parts."""
    await opened(page, harness, query)
    if "page=" in query:
        await expect(page.locator("main tbody tr").first).to_be_attached()
        return
    await expect(page.locator("#happened .line").nth(3)).to_be_attached()
    if "=" in query:
        await expect(page.locator("#detail-body > *").nth(2)).to_be_attached()


async def settled_width(page: Page, width: int) -> int:
    """Charts follow a new size of the window in a frame of their own."""
    with contextlib.suppress(PageTimeout):
        await page.wait_for_function(
            "width => document.documentElement.scrollWidth <= width", arg=width
        )
    found: int = await page.evaluate("document.documentElement.scrollWidth")
    return found


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.long
async def test_the_page_has_no_accessibility_faults(
    page: Page, scenario: ConsoleHarness, look: str
) -> None:
    """By all rules once; by the rules about colours and sizes where these differ."""
    await loaded(page, scenario, look)
    faults = {"desk": await accessibility_faults(page)}
    await page.emulate_media(color_scheme="dark")
    faults["dark"] = await accessibility_faults(page, "color-contrast")
    widths = {}
    for width in (PHONE, WALL):
        await page.set_viewport_size({"width": width, "height": 900})
        widths[width] = await settled_width(page, width)
        faults[f"{width} wide"] = await accessibility_faults(page, *SIZES)

    assert faults == {where: [] for where in faults}
    assert {width: wide for width, wide in widths.items() if wide > width} == {}


async def test_the_audit_finds_what_is_wrong(page: Page, scenario: ConsoleHarness) -> None:
    await loaded(page, scenario, "")
    await page.evaluate(
        "document.querySelector('main').append(document.createElement('button'));"
        "const sheet = new CSSStyleSheet();"
        "sheet.replaceSync('#totals dt { color: rgb(200 200 200) !important }');"
        "document.adoptedStyleSheets.push(sheet)"
    )
    rules = {fault.partition(":")[0] for fault in await accessibility_faults(page)}

    assert rules == {"button-name", "color-contrast"}


# --- the keyboard -----------------------------------------------------------------------------

REACHABLE = """[...document.querySelectorAll('button, select, input, a[href], [tabindex="0"]')]
  .filter(each => each.checkVisibility() && !each.disabled && each.tabIndex >= 0)"""
# By its text and not by its element, because the page may draw an element again.
STOP = "(each => `${each.tagName} ${each.id} ${each.getAttribute('aria-label') ?? each.innerText}`)"


async def test_the_keyboard_reaches_every_control(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario, "?node=n2")
    await expect(page.locator("#detail")).to_contain_text("Transitions")
    await expect(page.locator("#unread-cards")).to_be_attached()
    await expect(page.get_by_label("Measured power")).to_be_attached()  # once it has two points
    await page.locator("#pause").press("Enter")  # the elements stay the same from here on
    reached = set[str]()
    for _ in range(2 * await page.evaluate(f"{REACHABLE}.length")):
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate(f"{STOP}(document.activeElement)"))
    wanted = set(await page.evaluate(f"{REACHABLE}.map({STOP})"))

    assert len(wanted) > 10
    assert wanted - reached == set()


# The events of a resting pointer when the page moves under it.
RESTING_POINTER = """() => {
    for (const kind of ["pointermove", "pointerleave"]) {
        const event = new PointerEvent(kind, {clientX: 1, clientY: 1});
        document.querySelector("#map").dispatchEvent(event);
    }
}"""


async def test_keys_move_over_the_map_and_open_a_node(page: Page, scenario: ConsoleHarness) -> None:
    await loaded(page, scenario, "")
    await page.locator("#map").focus()
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("#map-status")).to_contain_text("n2: eco, headroom 17 %")
    await page.evaluate(RESTING_POINTER)
    await page.keyboard.press("Enter")
    await expect(page.locator("#detail")).to_contain_text("CPU 60 %")
    await page.keyboard.press("Escape")
    await expect(page.locator("#detail")).to_be_hidden()

    await expect(page.locator("#map")).to_be_focused()


async def test_the_page_moves_nothing_for_users_who_reduce_motion(
    page: Page, scenario: ConsoleHarness
) -> None:
    moving = (
        "() => [...document.querySelectorAll('*')].filter(each => "
        "getComputedStyle(each).transitionDuration.split(', ').some(time => time !== '0s') || "
        "getComputedStyle(each).animationName !== 'none').length"
    )
    await loaded(page, scenario, "")
    still = await page.evaluate(moving)
    await page.emulate_media(reduced_motion="no-preference")
    lively = await page.evaluate(moving)

    assert (still, lively > 0) == (0, True)


# --- names ------------------------------------------------------------------------------------

HOSTILE = "<script>window.hurt=1</script><img src=x onerror=hurt=1>"
BACKWARDS = "\u202eevil node\u2066" + "x" * 200


async def test_hostile_names_are_shown_as_text(
    page: Page, complaints: list[str], new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        for name in (HOSTILE, BACKWARDS):
            seen = replace(node_seen(name, rack=HOSTILE), uid="u")
            await harness.publish(seen, hardware(name), power(name, 100))
        await harness.publish(pending(HOSTILE))
        await harness.decide(ask(HOSTILE))
        await opened(page, harness, "?view=table&group=rack")
        await expect(page.locator("#table-view")).to_contain_text(HOSTILE)
        await expect(page.locator("#table-view")).to_contain_text("\u27e8202e\u27e9evil node")
        await expect(page.locator("#decisions")).to_contain_text(HOSTILE)
        await page.locator("#table-view tbody a").first.click()
        await expect(page.locator("#detail")).to_contain_text(HOSTILE)
        is_wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")

        assert (await page.evaluate("window.hurt"), is_wide, complaints) == (None, False, [])


# --- 5,000 nodes -----------------------------------------------------------------------------

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


@pytest.mark.long
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
