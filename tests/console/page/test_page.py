"""The page in a real Chromium: what a person sees, does, and is never bothered with."""

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
from joulie_console.testing import Stage, showing, staging

pytestmark = pytest.mark.anyio
Staging = Callable[..., AbstractAsyncContextManager[Stage]]

FIGURES = "document.querySelector('#totals').innerText"
ENTRIES = "[...document.querySelectorAll('#decisions [data-entry]')].map(row => +row.dataset.entry)"
DRAWN = """(() => {
  const map = document.querySelector('#map');
  if (!map.style.height || map.height < 40) return false;
  const other = new OffscreenCanvas(map.width, map.height);
  const copy = other.getContext('2d', {willReadFrequently: true});
  copy.drawImage(map, 0, 0);
  return copy.getImageData(0, 0, map.width, map.height).data.some(value => value > 0);
})()"""  # of a copy: a canvas that is read itself becomes another one, and Chromium complains


def shows(selector: str, text: str) -> str:
    return f"document.querySelector({selector!r})?.innerText.includes({text!r})"


async def opened(page: Page, stage: Stage, query: str = "") -> None:
    await page.open(f"{stage.url}/{query}")
    await page.until("document.querySelector('#age-text').innerText.includes('position')")


async def test_the_page_opens_and_the_map_fills_and_nobody_complains(
    page: Page, past: Stage
) -> None:
    await opened(page, past)
    await page.until(DRAWN)
    figures = await page.run(FIGURES)

    assert "450 W" in figures
    assert "1 performance, 1 eco, 1 draining" in figures
    assert page.complaints == []


async def test_nothing_is_asked_of_anybody_else(page: Page, past: Stage) -> None:
    await opened(page, past)
    await page.until(DRAWN)

    assert {url for url in page.requests if not url.startswith(past.url)} == set()


async def test_what_is_wrong_is_said_at_the_top(page: Page, past: Stage) -> None:
    await opened(page, past)

    await page.until(shows("#warnings", "1 of 3 nodes have no fresh power reading"))


async def test_a_decision_appears_as_it_is_made(page: Page, stage_of: Staging) -> None:
    async with stage_of() as stage:
        await stage.tell(node_seen("n1"), hardware("n1"), power("n1", 100))
        await opened(page, stage)
        await stage.place(ask("fresh"))
        await page.until(shows("#decisions", "team/fresh"))

        assert page.complaints == []


async def test_a_decision_opens_to_its_terms_beside_the_runner_up(page: Page, past: Stage) -> None:
    await opened(page, past)
    await page.click("#decisions [data-entry='3']")
    await page.until(shows("#detail", "The winner beside the runner-up"))
    await page.until(shows(".duel", "headroom"))

    assert await page.run("location.search") == "?decision=3"
    assert await page.run("document.activeElement.id") == "detail-title"


async def test_every_term_is_computed_again_on_demand(page: Page, past: Stage) -> None:
    await opened(page, past, "?decision=3")
    await page.until(shows("#detail", "Candidates (3)"))
    explained = await page.run("document.querySelectorAll('#detail .duel tbody tr').length")

    assert explained == 7


async def test_a_pod_is_found_and_explained(page: Page, past: Stage) -> None:
    await opened(page, past)
    await page.run("document.querySelector('#q').focus()")
    await page.write("heav")
    await page.until(shows("#found", "team/heavy"))
    await page.press("Enter")
    await page.until(shows("#detail", "kube-scheduler put it on n3"))

    assert "pod=heavy" in await page.run("location.search")


async def test_a_node_shows_its_caps_its_state_and_what_it_went_through(
    page: Page, past: Stage
) -> None:
    await opened(page, past, "?node=n2")
    await page.until(shows("#detail", "CPU 60 %, GPU"))
    await page.until(shows("#detail .machine .now", "eco"))

    assert await page.run(shows("#detail .lines", "caps: CPU 60 %, GPU none"))


async def test_a_node_above_its_cap_says_how_far(page: Page, stage_of: Staging) -> None:
    async with stage_of() as stage:
        await stage.tell(node_seen("n1"), hardware("n1", watts=600), caps("n1", cpu=50))
        await stage.tell(power("n1", 330))
        await opened(page, stage, "?node=n1")
        await page.until(shows("#detail-body", "\u221210 % (measured)"))


async def test_a_long_history_of_a_node_is_had_piece_by_piece(
    page: Page, stage_of: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_tail, "PLANS_KEPT", 2)
    async with stage_of() as stage:
        await stage.tell(node_seen("n1"), hardware("n1"))
        await stage.tell(*(caps("n1", cpu=cpu) for cpu in range(40, 90, 5)))
        await opened(page, stage)
        await page.until("fetch('/v1/nodes/n1').then(answer => answer.ok)")
        await opened(page, stage, "?node=n1")
        await page.until(shows("#detail .lines", "CPU 85 %"))
        await page.click("#detail .lines + button")
        await page.until(shows("#detail .lines", "CPU 40 %"))

        assert await page.run("document.querySelectorAll('#detail .lines li').length") == 10
        assert await page.run("document.querySelector('#detail .lines + button').hidden")


async def test_cards_are_listed_with_who_has_claimed_them(page: Page, past: Stage) -> None:
    await opened(page, past)

    await page.until(shows("#gpus", "team/heavy"))


async def test_time_goes_back_and_comes_back(page: Page, past: Stage) -> None:
    await opened(page, past)
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


async def test_a_link_shows_another_person_the_same(page: Page, past: Stage) -> None:
    await opened(page, past, "?at=13&colour=class&group=class&node=n2&view=table")
    await page.until(shows("#table-view", "n3"))
    await page.until(shows("#detail", "eco"))

    chosen = "[...document.querySelectorAll('#colour, #group')].map(each => each.value)"
    assert await page.run(chosen) == ["class", "class"]


async def test_the_table_says_what_the_map_shows_and_is_sorted(page: Page, past: Stage) -> None:
    await opened(page, past)
    await page.click("#as-table")
    await page.click("#table-view [data-sort='measured']")
    await page.click("#table-view th[aria-sort='ascending'] [data-sort='measured']")
    await page.until(
        "document.querySelector('#table-view tbody th')?.innerText === 'n2'",
    )


async def test_a_console_that_goes_away_is_missed_and_found_again_without_a_gap(
    page: Page, empty_streams: Embedded, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{free_port()}"
    async with staging(empty_streams, tmp_path) as stage:
        await stage.record(*noise(5))
        async with showing(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await page.open(f"http://{at}/")
            await page.until(f"{ENTRIES}.length === 5")
            await stage.record(*noise(5))
            await page.until(f"{ENTRIES}[0] === 10")
        await page.until(shows("#warnings", "The connection is lost"))
        await stage.record(*noise(20))
        async with showing(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await page.until(f"{ENTRIES}[0] === 30")
            await page.until(f"!{shows('#warnings', 'The connection is lost')}")
            entries = await page.run(ENTRIES)

    assert entries == list(range(30, 0, -1))


async def test_what_could_not_be_had_is_had_once_the_console_is_there(
    page: Page, empty_streams: Embedded, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{free_port()}"
    async with staging(empty_streams, tmp_path) as stage:
        await stage.tell(node_seen("n1"))
        async with showing(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await page.open(f"http://{at}/")
            await page.until("document.querySelector('#map-empty').hidden")
        await page.until(shows("#warnings", "The connection is lost"))
        await page.run("import('/state.js').then((state) => state.change({ node: 'n1' }))")
        await page.until(shows("#detail-title", "Not to be had"))
        async with showing(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await page.until(shows("#detail-title", "n1"))


async def test_what_is_not_there_yet_is_shown_as_soon_as_it_is(
    page: Page, stage_of: Staging
) -> None:
    async with stage_of() as stage:
        await opened(page, stage, "?node=n1")
        await page.until(shows("#detail-title", "Not to be had"))
        await stage.tell(node_seen("n1"))
        await page.until(shows("#detail-title", "n1"))


def noise(count: int) -> list[SettingsDeclared]:
    return [SettingsDeclared(settings=f"s{n}", code="x", values={}) for n in range(count)]


async def test_who_pauses_the_list_reads_in_peace(page: Page, stage_of: Staging) -> None:
    async with stage_of() as stage:
        await stage.record(*noise(2))
        await opened(page, stage)
        await page.until(f"{ENTRIES}[0] === 2")
        await page.click("#pause")
        await stage.record(*noise(3))
        await page.until(shows("#pause", "Go on (3)"))
        assert await page.run(f"{ENTRIES}[0]") == 2

        await page.click("#pause")
        await page.until(f"{ENTRIES}[0] === 5")


HOSTILE = "<script>window.hurt=1</script><img src=x onerror=hurt=1>"
BACKWARDS = "\u202eevil node\u2066" + "x" * 200


async def test_hostile_names_are_text_and_nothing_else(page: Page, stage_of: Staging) -> None:
    async with stage_of() as stage:
        for name in (HOSTILE, BACKWARDS):
            seen = replace(node_seen(name, rack=HOSTILE), uid="u")
            await stage.tell(seen, hardware(name), power(name, 100))
        await stage.tell(pending(HOSTILE))
        await stage.place(ask(HOSTILE))
        await opened(page, stage, "?view=table&group=rack")
        await page.until(shows("#table-view", HOSTILE))
        await page.until(shows("#table-view", "\u27e8202e\u27e9evil node"))
        await page.until(shows("#decisions", HOSTILE))
        await page.click("#table-view tbody button")
        await page.until(shows("#detail", HOSTILE))
        wide = await page.run("document.documentElement.scrollWidth <= innerWidth")

        assert (await page.run("window.hurt"), wide, page.complaints) == (None, True, [])


async def test_the_theme_follows_the_system_until_somebody_chooses(page: Page, past: Stage) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    await opened(page, past)
    light = await page.run(ground)
    await page.resize(1440, 900, dark=True)
    dark = await page.run(ground)
    await page.click("#theme")
    await page.click("#theme")

    assert await page.run("document.querySelector('#theme').innerText") == "Theme: light"
    assert await page.run(ground) == light != dark


async def test_a_chosen_theme_is_there_before_anything_is_painted(page: Page, past: Stage) -> None:
    await opened(page, past)
    await page.run("localStorage.setItem('theme', 'dark')")
    await page.send(
        "Page.addScriptToEvaluateOnNewDocument",
        source="new MutationObserver(() => { if (document.body) "
        "window.first ??= document.documentElement.dataset.theme ?? 'none' })"
        ".observe(document, { childList: true, subtree: true })",
    )
    await opened(page, past)
    first = await page.run("window.first")
    await page.run("localStorage.clear()")

    assert first == "dark"


async def test_the_map_draws_in_colours_and_not_in_words_for_them(page: Page, past: Stage) -> None:
    await opened(page, past)
    roles = ["--ground", "--muted", "--ink", "--accent"]
    style = "getComputedStyle(document.documentElement)"
    found = [await page.run(f"{style}.getPropertyValue('{role}')") for role in roles]

    assert [colour.startswith("rgb(") for colour in found] == [True] * 4


async def test_a_token_is_asked_for_once_and_never_stands_in_a_url(
    page: Page, stage_of: Staging, tmp_path: Path
) -> None:
    secret = tmp_path / "token"
    secret.write_text("a-token-of-some-length\n")
    async with stage_of(CONSOLE_TOKEN_FILE=str(secret)) as stage:
        await stage.tell(node_seen("n1"), hardware("n1"), power("n1", 100))
        await page.open(stage.url)
        await page.until("document.querySelector('#token-dialog').open")
        await page.run("document.querySelector('#token').focus()")
        await page.write("a-token-of-some-length")
        await page.press("Enter")
        await page.until(f"{FIGURES}.includes('100 W')")

    assert [url for url in page.requests if "a-token" in url] == []


# --- for everybody ----------------------------------------------------------------------------

REACHABLE = """[...document.querySelectorAll('button, select, input, a[href], [tabindex="0"]')]
  .filter(each => each.checkVisibility() && !each.disabled && each.tabIndex >= 0)"""
# By what it is, not by which element: the page may draw the same thing anew.
STOP = "(each => `${each.tagName} ${each.id} ${each.getAttribute('aria-label') ?? each.innerText}`)"


async def test_the_keyboard_reaches_everything(page: Page, past: Stage) -> None:
    await opened(page, past, "?node=n2")
    await page.until(shows("#detail", "What it went through"))
    await page.until("document.querySelectorAll('#gpus tbody tr').length > 0")
    await page.click("#pause")
    await page.run("document.activeElement.blur()")
    reached, wanted = set[str](), {"anything"}
    for _ in range(4 * await page.run(f"{REACHABLE}.length")):
        if not (wanted - reached):
            break
        await page.press("Tab")  # round and round: what is drawn anew sends us back to the start
        reached.add(await page.run(f"{STOP}(document.activeElement)"))
        wanted = set(await page.run(f"{REACHABLE}.map({STOP})"))

    assert len(wanted) > 10
    assert wanted - reached == set()


# What a browser tells of a pointer that nobody moves, when the page moves under it.
RESTING_POINTER = """
    for (const kind of ["pointermove", "pointerleave"]) {
        const event = new PointerEvent(kind, {clientX: 1, clientY: 1});
        document.querySelector("#map").dispatchEvent(event);
    }
"""


async def test_the_map_is_walked_and_opened_by_keys(page: Page, past: Stage) -> None:
    await opened(page, past)
    await page.until(DRAWN)
    await page.run("document.querySelector('#map').focus()")
    await page.press("ArrowRight")
    await page.press("ArrowRight")
    await page.until(shows("#map-said", "n2: eco, headroom 17 %"))
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
async def test_no_fault_keeps_anybody_out(page: Page, past: Stage, width: int, dark: bool) -> None:
    await page.resize(width, 900, dark=dark)
    faults = {}
    for look in LOOKS:
        await opened(page, past, look)
        await page.until("document.querySelectorAll('#plans .line').length > 3")
        if "=" in look:
            await page.until("document.querySelector('#detail-body').childElementCount > 2")
        faults[look] = await page.listen_to(AUDIT)

    assert faults == {look: [] for look in LOOKS}
