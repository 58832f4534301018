"""The page in a real Chromium: its contents, its controls, and its accessibility."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from msgspec.structs import replace

from chromium import Page
from joulie_bus.broker.embedded import Embedded, free_port
from joulie_bus.events import SettingsDeclared
from joulie_bus.testing import ask, caps, hardware, node_seen, pending, power
from joulie_console.stream import event_tail
from joulie_console.testing import ConsoleHarness, console_harness, running_console

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]

FIGURES = "document.querySelector('#totals').innerText"
ENTRIES = "[...document.querySelectorAll('#decisions [data-entry]')].map(row => +row.dataset.entry)"
DRAWN = """(() => {
  const map = document.querySelector('#map');
  if (!map.style.height || map.height < 40) return false;
  const other = new OffscreenCanvas(map.width, map.height);
  const copy = other.getContext('2d', {willReadFrequently: true});
  copy.drawImage(map, 0, 0);
  return copy.getImageData(0, 0, map.width, map.height).data.some(value => value > 0);
})()"""  # of a copy: reading a canvas changes how Chromium draws it, and logs a warning


def shows(selector: str, text: str) -> str:
    return f"document.querySelector({selector!r})?.innerText.includes({text!r})"


async def opened(page: Page, harness: ConsoleHarness, query: str = "") -> None:
    await page.open(f"{harness.url}/{query}")
    await page.until("document.querySelector('#age-text').innerText.includes('position')")


async def test_the_page_draws_the_map_without_console_messages(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    await page.until(DRAWN)
    figures = await page.run(FIGURES)

    assert "450 W" in figures
    assert "1 performance, 1 eco, 1 draining" in figures
    assert page.complaints == []


async def test_the_page_loads_nothing_from_other_sites(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    await page.until(DRAWN)

    assert {url for url in page.requests if not url.startswith(scenario.url)} == set()


async def test_warnings_are_shown_at_the_top(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario)

    await page.until(shows("#warnings", "1 of 3 nodes have no fresh power reading"))


async def test_a_new_decision_appears(page: Page, new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100))
        await opened(page, harness)
        await harness.decide(ask("fresh"))
        await page.until(shows("#decisions", "team/fresh"))

        assert page.complaints == []


async def test_an_open_decision_shows_the_terms_of_the_two_best_nodes(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    await page.click("#decisions [data-entry='3']")
    await page.until(shows("#detail", "The winner and the runner-up"))
    await page.until(shows(".duel", "headroom"))

    assert await page.run("location.search") == "?decision=3"
    assert await page.run("document.activeElement.id") == "detail-title"


async def test_every_term_of_the_two_best_nodes_is_in_the_table(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario, "?decision=3")
    await page.until(shows("#detail", "Candidates (3)"))
    explained = await page.run("document.querySelectorAll('#detail .duel tbody tr').length")

    assert explained == 7


async def test_a_pod_is_found_and_explained(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario)
    await page.run("document.querySelector('#q').focus()")
    await page.write("heav")
    await page.until(shows("#found", "team/heavy"))
    await page.press("Enter")
    await page.until(shows("#detail", "kube-scheduler put it on n3"))

    assert "pod=heavy" in await page.run("location.search")


async def test_a_node_shows_its_caps_its_state_and_its_transitions(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario, "?node=n2")
    await page.until(shows("#detail", "CPU 60 %, GPU"))
    await page.until(shows("#detail .machine .now", "eco"))

    assert await page.run(shows("#detail .lines", "caps: CPU 60 %, GPU none"))


async def test_a_node_above_its_cap_has_negative_headroom(
    page: Page, new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1", watts=600), caps("n1", cpu=50))
        await harness.publish(power("n1", 330))
        await opened(page, harness, "?node=n1")
        await page.until(shows("#detail-body", "\u221210 % (measured)"))


async def test_earlier_transitions_of_a_node_are_loaded_on_demand(
    page: Page, new_harness: NewHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_tail, "PLANS_KEPT", 2)
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"))
        await harness.publish(*(caps("n1", cpu=cpu) for cpu in range(40, 90, 5)))
        await opened(page, harness)
        await page.until("fetch('/v1/nodes/n1').then(answer => answer.ok)")
        await opened(page, harness, "?node=n1")
        await page.until(shows("#detail .lines", "CPU 85 %"))
        await page.click("#detail .lines + button")
        await page.until(shows("#detail .lines", "CPU 40 %"))

        assert await page.run("document.querySelectorAll('#detail .lines li').length") == 10
        assert await page.run("document.querySelector('#detail .lines + button').hidden")


async def test_cards_are_listed_with_their_claims(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario)

    await page.until(shows("#gpus", "team/heavy"))


async def test_the_slider_shows_a_past_state_and_live_returns(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    await page.until(f"{FIGURES}.includes('1 draining')")
    await page.run(
        "(slider => { slider.value = 8; slider.dispatchEvent(new Event('input')) })"
        "(document.querySelector('#slider'))"
    )
    await page.until(f"{FIGURES}.includes('0 draining')")
    await page.until(shows("#when", "position 8"))
    assert await page.run("location.search") == "?at=8"

    await page.click("#to-now")
    await page.until(f"{FIGURES}.includes('1 draining')")


async def test_a_link_restores_the_selection(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario, "?at=13&colour=class&group=class&node=n2&view=table")
    await page.until(shows("#table-view", "n3"))
    await page.until(shows("#detail", "eco"))

    chosen = "[...document.querySelectorAll('#colour, #group')].map(each => each.value)"
    assert await page.run(chosen) == ["class", "class"]


async def test_the_table_is_sorted_by_a_column(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario)
    await page.click("#as-table")
    await page.click("#table-view [data-sort='measured']")
    await page.click("#table-view th[aria-sort='ascending'] [data-sort='measured']")
    await page.until(
        "document.querySelector('#table-view tbody th')?.innerText === 'n2'",
    )


async def test_the_page_reconnects_to_a_restarted_console_without_a_gap(
    page: Page, empty_streams: Embedded, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{free_port()}"
    async with console_harness(empty_streams, tmp_path) as harness:
        await harness.publish_decisions(*settings_entries(5))
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await page.open(f"http://{at}/")
            await page.until(f"{ENTRIES}.length === 5")
            await harness.publish_decisions(*settings_entries(5))
            await page.until(f"{ENTRIES}[0] === 10")
        await page.until(shows("#warnings", "The connection is lost"))
        await harness.publish_decisions(*settings_entries(20))
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await page.until(f"{ENTRIES}[0] === 30")
            await page.until(f"!{shows('#warnings', 'The connection is lost')}")
            entries = await page.run(ENTRIES)

    assert entries == list(range(30, 0, -1))


async def test_details_that_failed_to_load_are_retried_after_a_reconnection(
    page: Page, empty_streams: Embedded, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{free_port()}"
    async with console_harness(empty_streams, tmp_path) as harness:
        await harness.publish(node_seen("n1"))
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await page.open(f"http://{at}/")
            await page.until("document.querySelector('#map-empty').hidden")
        await page.until(shows("#warnings", "The connection is lost"))
        await page.run("import('/state.js').then((state) => state.change({ node: 'n1' }))")
        await page.until(shows("#detail-title", "Not available"))
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await page.until(shows("#detail-title", "n1"))


async def test_details_of_a_missing_node_appear_once_it_exists(
    page: Page, new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await opened(page, harness, "?node=n1")
        await page.until(shows("#detail-title", "Not available"))
        await harness.publish(node_seen("n1"))
        await page.until(shows("#detail-title", "n1"))


def settings_entries(count: int) -> list[SettingsDeclared]:
    return [SettingsDeclared(settings=f"s{n}", code="x", values={}) for n in range(count)]


async def test_a_paused_list_does_not_change(page: Page, new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        await harness.publish_decisions(*settings_entries(2))
        await opened(page, harness)
        await page.until(f"{ENTRIES}[0] === 2")
        await page.click("#pause")
        await harness.publish_decisions(*settings_entries(3))
        await page.until(shows("#pause", "Resume (3)"))
        assert await page.run(f"{ENTRIES}[0]") == 2

        await page.click("#pause")
        await page.until(f"{ENTRIES}[0] === 5")


HOSTILE = "<script>window.hurt=1</script><img src=x onerror=hurt=1>"
BACKWARDS = "\u202eevil node\u2066" + "x" * 200


async def test_hostile_names_are_shown_as_text(page: Page, new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        for name in (HOSTILE, BACKWARDS):
            seen = replace(node_seen(name, rack=HOSTILE), uid="u")
            await harness.publish(seen, hardware(name), power(name, 100))
        await harness.publish(pending(HOSTILE))
        await harness.decide(ask(HOSTILE))
        await opened(page, harness, "?view=table&group=rack")
        await page.until(shows("#table-view", HOSTILE))
        await page.until(shows("#table-view", "\u27e8202e\u27e9evil node"))
        await page.until(shows("#decisions", HOSTILE))
        await page.click("#table-view tbody button")
        await page.until(shows("#detail", HOSTILE))
        wide = await page.run("document.documentElement.scrollWidth <= innerWidth")

        assert (await page.run("window.hurt"), wide, page.complaints) == (None, True, [])


async def test_the_theme_follows_the_system_until_one_is_chosen(
    page: Page, scenario: ConsoleHarness
) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    await opened(page, scenario)
    light = await page.run(ground)
    await page.resize(1440, 900, dark=True)
    dark = await page.run(ground)
    await page.click("#theme")
    await page.click("#theme")

    assert await page.run("document.querySelector('#theme').innerText") == "Theme: light"
    assert await page.run(ground) == light != dark


async def test_a_chosen_theme_is_applied_before_the_first_paint(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    await page.run("localStorage.setItem('theme', 'dark')")
    await page.send(
        "Page.addScriptToEvaluateOnNewDocument",
        source="new MutationObserver(() => { if (document.body) "
        "window.first ??= document.documentElement.dataset.theme ?? 'none' })"
        ".observe(document, { childList: true, subtree: true })",
    )
    await opened(page, scenario)
    first = await page.run("window.first")
    await page.run("localStorage.clear()")

    assert first == "dark"


async def test_the_colours_of_the_map_are_computed_values(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    roles = ["--ground", "--muted", "--ink", "--accent"]
    style = "getComputedStyle(document.documentElement)"
    found = [await page.run(f"{style}.getPropertyValue('{role}')") for role in roles]

    assert [colour.startswith("rgb(") for colour in found] == [True] * 4


async def test_the_token_is_requested_once_and_is_in_no_url(
    page: Page, new_harness: NewHarness, tmp_path: Path
) -> None:
    secret = tmp_path / "token"
    secret.write_text("a-token-of-some-length\n")
    async with new_harness(CONSOLE_TOKEN_FILE=str(secret)) as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100))
        await page.open(harness.url)
        await page.until("document.querySelector('#token-dialog').open")
        await page.run("document.querySelector('#token').focus()")
        await page.write("a-token-of-some-length")
        await page.press("Enter")
        await page.until(f"{FIGURES}.includes('100 W')")

    assert [url for url in page.requests if "a-token" in url] == []


# --- accessibility ----------------------------------------------------------------------------

REACHABLE = """[...document.querySelectorAll('button, select, input, a[href], [tabindex="0"]')]
  .filter(each => each.checkVisibility() && !each.disabled && each.tabIndex >= 0)"""
# By its text and not by its element, because the page may draw an element again.
STOP = "(each => `${each.tagName} ${each.id} ${each.getAttribute('aria-label') ?? each.innerText}`)"


async def test_the_keyboard_reaches_every_control(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario, "?node=n2")
    await page.until(shows("#detail", "Transitions"))
    await page.until("document.querySelectorAll('#gpus tbody tr').length > 0")
    await page.click("#pause")
    await page.run("document.activeElement.blur()")
    reached, wanted = set[str](), {"anything"}
    for _ in range(4 * await page.run(f"{REACHABLE}.length")):
        if not (wanted - reached):
            break
        await page.press("Tab")  # several rounds: an element that is drawn again resets the focus
        reached.add(await page.run(f"{STOP}(document.activeElement)"))
        wanted = set(await page.run(f"{REACHABLE}.map({STOP})"))

    assert len(wanted) > 10
    assert wanted - reached == set()


# The events of a resting pointer when the page moves under it.
RESTING_POINTER = """
    for (const kind of ["pointermove", "pointerleave"]) {
        const event = new PointerEvent(kind, {clientX: 1, clientY: 1});
        document.querySelector("#map").dispatchEvent(event);
    }
"""


async def test_keys_move_over_the_map_and_open_a_node(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario)
    await page.until(DRAWN)
    await page.run("document.querySelector('#map').focus()")
    await page.press("ArrowRight")
    await page.press("ArrowRight")
    await page.until(shows("#map-status", "n2: eco, headroom 17 %"))
    await page.run(RESTING_POINTER)
    await page.press("Enter")
    await page.until(shows("#detail", "CPU 60 %"))
    await page.press("Escape")
    await page.until("document.querySelector('#detail').hidden")

    assert await page.run("document.activeElement.id") == "map"


AUDIT = (Path(__file__).parents[1] / "accessibility.js").read_text()
LOOKS = ["", "?view=table&decision=3", "?node=n3&colour=class", "?pod=heavy&at=18"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440, 2560])
async def test_the_page_has_no_accessibility_faults(
    page: Page, scenario: ConsoleHarness, width: int, dark: bool
) -> None:
    await page.resize(width, 900, dark=dark)
    faults = {}
    for look in LOOKS:
        await opened(page, scenario, look)
        await page.until("document.querySelectorAll('#plans .line').length > 3")
        if "=" in look:
            await page.until("document.querySelector('#detail-body').childElementCount > 2")
        faults[look] = await page.listen_to(AUDIT)

    assert faults == {look: [] for look in LOOKS}
