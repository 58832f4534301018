"""The page in a real Chromium: its contents and its controls."""

import re
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from playwright.async_api import Page, Route, expect

from browser import held
from bus_kit import (
    ask,
    asleep,
    bound,
    caps,
    card,
    eco,
    hardware,
    node_seen,
    pending,
    plan_made,
    power,
    waking,
)
from console_kit import ConsoleHarness, console_harness, running_console
from joulie_bus.broker.embedded import Embedded
from joulie_bus.events import NodeSeen, OutcomeSeen, PodBound, SettingsDeclared, Ties
from joulie_bus.runtime.ports import free_port
from joulie_console.stream import event_tail
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import DecisionContext, decide_prioritize
from joulie_projections.energy.idle_holders import IdleHolder
from joulie_projections.energy.saved import LedgerState
from joulie_projections.energy.savings import Saved, SavedRange, Savings
from joulie_projections.state.completeness import NEVER_MS
from joulie_projections.twin.columns import TwinColumns

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]

ENTRY = "#decisions [data-entry]"
DRAWN = """() => {
  const map = document.querySelector('#map');
  if (!map?.style.height || map.height < 40) return false;
  const other = new OffscreenCanvas(map.width, map.height);
  const copy = other.getContext('2d', {willReadFrequently: true});
  copy.drawImage(map, 0, 0);
  return copy.getImageData(0, 0, map.width, map.height).data.some(value => value > 0);
}"""  # of a copy: reading a canvas changes how Chromium draws it, and logs a warning

LISTED = """async () => {
  const { model } = await import('/store.js');
  return { decisions: model.decisions, plans: model.plans };
}"""
REPEATED_EVENTS = """async () => {
  const { model, stream } = await import('/store.js');
  const { decisions, plans } = model;
  for (const brief of decisions.toReversed()) stream.on.event('decision', brief);
  for (const entry of plans.toReversed())
    stream.on.event(entry.plan ? 'plan' : 'transition', entry);
}"""  # what the console sends after a reconnection with Last-Event-ID


async def answers_with_some_power(route: Route) -> None:
    """Points of ten minutes, whatever was measured: what the page draws is what a test looks at."""
    now_ms = int(time.time() * 1000)
    points = [[now_ms - (60 - at) * 10_000, at, 100 + at * at, 5000] for at in range(60)]
    await route.fulfill(json={"points": points})


async def opened(page: Page, harness: ConsoleHarness, query: str = "") -> None:
    await page.goto(f"{harness.url}/{query}")
    await expect(page.locator("#top-line")).to_contain_text("position")


@pytest.mark.long
async def test_the_page_draws_the_map_without_console_messages(
    page: Page, complaints: list[str], scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    await page.wait_for_function(DRAWN)

    await expect(page.locator("#totals")).to_contain_text("450 W")
    await expect(page.locator("#totals")).to_contain_text("1 performance, 1 eco, 1 draining")
    assert complaints == []


async def test_the_page_loads_nothing_from_other_sites(
    page: Page, scenario: ConsoleHarness
) -> None:
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    await opened(page, scenario)
    await page.wait_for_function(DRAWN)

    assert len(requested) > 5
    assert [url for url in requested if not url.startswith(scenario.url)] == []


async def test_a_new_decision_appears(
    page: Page, complaints: list[str], new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100))
        await opened(page, harness)
        await harness.decide(ask("fresh"))
        await expect(page.locator("#decisions")).to_contain_text("team/fresh")

        assert complaints == []


async def test_an_outcome_is_one_sentence_with_the_score_that_it_followed(
    page: Page, new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100))
        await opened(page, harness)
        await harness.decide(ask("fresh"))
        await expect(page.locator(ENTRY).first).to_have_attribute("data-entry", "3")
        placed = OutcomeSeen(pod_uid="fresh", namespace="team", name="fresh", node="n1", rank=1)
        await harness.publish_decisions(placed)
        line = page.locator("#decisions .outcome")
        both = r"team/fresh runs on n1, ranked 1\. For team/fresh, n1 scores \d+\.\d of 100\."
        await expect(line).to_contain_text(re.compile(both))
        await expect(line.locator(".text > :last-child")).to_have_text(" outcome")  # comes last
        await expect(page.locator("#decisions .prioritize")).to_have_count(0)
        await expect(page.locator("#decisions .filter")).to_have_count(1)


async def test_a_chart_is_zoomed_by_a_drag_and_by_keys_and_shows_all_again(
    page: Page, scenario: ConsoleHarness
) -> None:
    await page.route("**/v1/power*", answers_with_some_power)
    await opened(page, scenario)
    plot = page.locator(".power-card .plot")
    over = plot.locator(".u-over")
    whole = await plot.locator("canvas").screenshot()
    box = await over.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + box["width"] * 0.3, y)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=5)
    await page.mouse.up()
    zoomed = await plot.locator("canvas").screenshot()
    await plot.press("Escape")
    await page.mouse.move(0, 0)
    all_again = await plot.locator("canvas").screenshot()
    await plot.press("+")
    by_keys = await plot.locator("canvas").screenshot()

    assert zoomed not in (whole, all_again)
    assert by_keys != all_again


async def test_an_open_decision_shows_the_terms_of_the_two_best_nodes(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    await page.click("#decisions [data-scored='3']")  # the outcome that followed it
    await expect(page.locator("#detail")).to_contain_text("The winner and the runner-up")
    await expect(page.locator(".duel")).to_contain_text("headroom")

    await expect(page).to_have_url(f"{scenario.url}/?decision=3")
    await expect(page.locator("#detail-title")).to_be_focused()


async def test_an_open_decision_without_a_view_says_so(page: Page, new_harness: NewHarness) -> None:
    empty = DecisionContext(TwinColumns.empty(), 0, NEVER_MS, 1)
    async with new_harness() as harness:
        await harness.publish_decisions(decide_prioritize(ask("web"), ["n1"], empty, Weights()))
        await opened(page, harness, "?decision=1")

        await expect(page.locator("#detail")).to_contain_text(
            "Viewnone: the extender had no view of the cluster yet"
        )


async def test_every_term_of_the_two_best_nodes_is_in_the_table(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario, "?decision=3")
    await expect(page.locator("#detail")).to_contain_text("Candidates (3)")

    await expect(page.locator("#detail .duel tbody tr")).to_have_count(7)


async def test_a_pod_is_found_and_explained(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario)
    await page.locator("#q").press_sequentially("heav")
    await expect(page.locator("#found")).to_contain_text("team/heavy")
    await page.keyboard.press("Enter")

    await expect(page.locator("#detail")).to_contain_text("outcome: bound to n3*")
    await expect(page).to_have_url(re.compile("pod=heavy"))


async def test_a_node_shows_its_caps_its_state_and_its_transitions(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario, "?node=n2")

    await expect(page.locator("#detail")).to_contain_text("CPU 60 %, GPU")
    await expect(page.locator("#detail .machine .now")).to_have_text("eco")
    await expect(page.locator("#detail .lines")).to_contain_text("caps: CPU 60 %, GPU none")


async def test_a_node_above_its_cap_has_negative_headroom(
    page: Page, new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1", watts=600), caps("n1", cpu=50))
        await harness.publish(power("n1", 330))
        await opened(page, harness, "?node=n1")

        await expect(page.locator("#detail-body")).to_contain_text("\u221210 % (measured)")


async def test_earlier_transitions_of_a_node_are_loaded_on_demand(
    page: Page, new_harness: NewHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_tail, "PLANS_KEPT", 2)
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"))
        await harness.publish(*(caps("n1", cpu=cpu) for cpu in range(40, 90, 5)))
        await opened(page, harness)
        await page.wait_for_function("() => fetch('/v1/nodes/n1').then(answer => answer.ok)")
        await opened(page, harness, "?node=n1")
        await expect(page.locator("#detail .lines")).to_contain_text("CPU 85 %")
        await page.get_by_role("button", name="Earlier transitions").click()
        await expect(page.locator("#detail .lines")).to_contain_text("CPU 40 %")

        await expect(page.locator("#detail .lines li")).to_have_count(10)
        await expect(page.get_by_role("button", name="Earlier transitions")).to_be_hidden()


async def test_cards_are_listed_with_their_claims(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario)
    unread = page.locator("#unread-cards")
    await expect(unread).to_contain_text("Of 1 of 1 cards it is not known how long")
    await expect(page.locator("#gpus table")).to_have_count(0)  # no row says only "not known"
    await unread.locator("summary").click()

    await expect(page.locator("#gpus")).to_contain_text("team/heavy")


async def test_the_slider_shows_a_past_state_and_live_returns(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    await expect(page.locator("#totals")).to_contain_text("1 draining")
    await page.locator("#slider").fill("8")
    await expect(page.locator("#totals")).to_contain_text("0 draining")
    await expect(page.locator("#when")).to_contain_text("position 8")
    await expect(page).to_have_url(f"{scenario.url}/?at=8")

    await page.click("#to-now")
    await expect(page.locator("#totals")).to_contain_text("1 draining")


async def test_a_past_state_shows_nothing_of_now_until_it_is_there(
    page: Page, scenario: ConsoleHarness
) -> None:
    async with held(page, re.compile(r"/v1/(cluster|map)\?at=8")):
        await opened(page, scenario)
        await page.locator("#slider").fill("8")
        await expect(page.locator("#totals[aria-busy=true]")).to_be_attached()
        await expect(page.get_by_text("Loading the map of nodes.")).to_be_attached()
        await expect(page.locator(".happened-card .card-head")).not_to_contain_text("plan ")

    await expect(page.locator("#totals")).to_contain_text("0 draining")


async def test_a_page_that_does_not_exist_is_not_the_overview(
    page: Page, scenario: ConsoleHarness
) -> None:
    await page.goto(f"{scenario.url}/?page=foo")

    await expect(page.locator("#content")).to_contain_text("the page foo, which does not exist")
    await expect(page.locator("nav [aria-current]")).to_have_count(0)
    await expect(page.locator("#totals")).to_have_count(0)


async def test_the_table_is_sorted_by_a_column(page: Page, scenario: ConsoleHarness) -> None:
    await opened(page, scenario)
    await page.click("#as-table")
    await page.click("#table-view [data-sort='measured']")
    await page.click("#table-view th[aria-sort='ascending'] [data-sort='measured']")

    await expect(page.locator("#table-view tbody th").first).to_have_text("n2")
    await expect(page.locator("#table-view [data-sort='measured']")).to_be_focused()


async def test_the_page_reconnects_to_a_restarted_console_without_a_gap(
    page: Page, empty_streams: Embedded, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{free_port()}"
    async with console_harness(empty_streams, tmp_path) as harness:
        await harness.publish_decisions(*settings_entries(5))
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await page.goto(f"http://{at}/")
            await expect(page.locator(ENTRY)).to_have_count(5)
            await harness.publish_decisions(*settings_entries(5))
            await expect(page.locator(ENTRY).first).to_have_attribute("data-entry", "10")
        await expect(page.locator("#health")).to_contain_text("The connection is lost")
        await harness.publish_decisions(*settings_entries(20))
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await expect(page.locator(ENTRY).first).to_have_attribute("data-entry", "30")
            await expect(page.locator("#health")).not_to_contain_text("The connection is lost")
            entries = await page.locator(ENTRY).evaluate_all(
                "rows => rows.map(row => +row.dataset.entry)"
            )

    assert entries == list(range(30, 0, -1))


async def test_a_lost_console_has_one_warning_that_says_of_when_the_figures_are(
    page: Page, empty_streams: Embedded, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{free_port()}"
    async with console_harness(empty_streams, tmp_path) as harness:
        await harness.publish(node_seen("n1"))
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await page.goto(f"http://{at}/")
            await expect(page.locator("#health")).to_contain_text("no fresh power reading")
        await expect(page.locator("#health")).to_contain_text("all figures are of")
        told = await page.locator("#health").all_inner_texts()

    (text,) = told  # what the console said before is of then
    assert re.search(r"^The connection is lost \(.+\): all figures are of .*\d\d:\d\d", text)


async def test_events_that_a_list_contains_already_are_not_added_again(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    await expect(page.locator(ENTRY).first).to_be_visible()
    await expect(page.locator("#happened li").first).to_be_visible()
    before = await page.evaluate(LISTED)

    await page.evaluate(REPEATED_EVENTS)

    assert before["decisions"]
    assert before["plans"]
    assert await page.evaluate(LISTED) == before


async def test_details_that_failed_to_load_are_retried_after_a_reconnection(
    page: Page, empty_streams: Embedded, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{free_port()}"
    async with console_harness(empty_streams, tmp_path) as harness:
        await harness.publish(node_seen("n1"))
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await page.goto(f"http://{at}/?view=table")
            await expect(page.locator("#table-view")).to_contain_text("n1")
        await expect(page.locator("#health")).to_contain_text("The connection is lost")
        await page.locator("#table-view").get_by_role("link", name="n1").click()
        await expect(page.locator("#detail-title")).to_have_text("Not available")
        async with running_console(empty_streams, tmp_path, CONSOLE_ADDR=at):
            await expect(page.locator("#detail-title")).to_have_text("n1")


async def test_details_of_a_missing_node_appear_once_it_exists(
    page: Page, new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await opened(page, harness, "?node=n1")
        await expect(page.locator("#detail-title")).to_have_text("Not available")
        await harness.publish(node_seen("n1"))

        await expect(page.locator("#detail-title")).to_have_text("n1")


def settings_entries(count: int) -> list[SettingsDeclared]:
    return [SettingsDeclared(settings=f"s{n}", code="x", values={}) for n in range(count)]


async def test_a_paused_list_does_not_change(page: Page, new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        await harness.publish_decisions(*settings_entries(2))
        await opened(page, harness)
        await expect(page.locator(ENTRY).first).to_have_attribute("data-entry", "2")
        await page.click("#pause")
        await harness.publish_decisions(*settings_entries(3))
        await expect(page.locator("#pause")).to_have_text("Resume (3)")
        await expect(page.locator(ENTRY).first).to_have_attribute("data-entry", "2")

        await page.click("#pause")
        await expect(page.locator(ENTRY).first).to_have_attribute("data-entry", "5")


async def test_the_theme_follows_the_system_until_one_is_chosen(
    page: Page, scenario: ConsoleHarness
) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    await opened(page, scenario)
    light = await page.evaluate(ground)
    await page.emulate_media(color_scheme="dark")
    dark = await page.evaluate(ground)
    await page.click("#theme")
    await page.click("#theme")

    await expect(page.locator("#theme")).to_have_text("Theme: light")
    assert await page.evaluate(ground) == light != dark


async def test_a_chosen_theme_is_applied_before_the_first_paint(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    await page.evaluate("localStorage.setItem('theme', 'dark')")
    await page.add_init_script(
        "new MutationObserver(() => { if (document.body) "
        "window.first ??= document.documentElement.dataset.theme ?? 'none' })"
        ".observe(document, { childList: true, subtree: true })"
    )
    await opened(page, scenario)

    assert await page.evaluate("window.first") == "dark"


async def test_the_colours_of_the_map_are_computed_values(
    page: Page, scenario: ConsoleHarness
) -> None:
    await opened(page, scenario)
    roles = ["--ground", "--muted", "--ink", "--accent"]
    style = "role => getComputedStyle(document.documentElement).getPropertyValue(role)"
    found = [await page.evaluate(style, role) for role in roles]

    assert [colour.startswith("rgb(") for colour in found] == [True] * 4


async def test_the_token_is_requested_once_and_is_in_no_url(
    page: Page, new_harness: NewHarness, tmp_path: Path
) -> None:
    secret = tmp_path / "token"
    secret.write_text("a-token-of-some-length\n")
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    async with new_harness(CONSOLE_TOKEN_FILE=str(secret)) as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), power("n1", 100))
        await page.goto(harness.url)
        await expect(page.locator("#token-dialog")).to_contain_text("CONSOLE_TOKEN_FILE names")
        await page.get_by_label("Token", exact=True).fill("another-token-of-a-length")
        await page.keyboard.press("Enter")
        await expect(page.locator("#token-dialog")).to_contain_text("This token is wrong.")
        await page.get_by_label("Token", exact=True).fill("a-token-of-some-length")
        await page.keyboard.press("Enter")
        await expect(page.locator("#totals")).to_contain_text("100 W")
        await expect(page.locator("#token-dialog")).to_be_hidden()

    assert len(requested) > 5
    assert [url for url in requested if "a-token" in url] == []


# --- links, and the other pages ----------------------------------------------------------------


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
    await expect(page.locator("#detail")).to_contain_text("outcome: bound to n3*")


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
    async with held(page, re.compile("/v1/")):
        await page.goto(f"{scenario.url}/?node=n1")
        await expect(page.get_by_text("Loading the map of nodes.")).to_be_attached()
        await expect(page.get_by_text("Loading the details.")).to_be_attached()
        await expect(page.locator("#totals[aria-busy=true] .figure")).to_have_count(7)
        await expect(page.locator("#health")).to_have_text("Not connected yet.")


async def test_pending_pods_have_a_reason_and_advice(page: Page, new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), eco("n1"))
        await harness.publish(pending("fast", performance=True), pending("unseen"))
        await harness.filter(ask("fast", performance=True))
        await opened(page, harness, "?page=pending")
        rows = page.locator("main tbody tr")
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text("refused: 0 of 1 nodes pass")
        await expect(rows.first).to_contain_text("STATIC_HP_FRAC")
        await expect(rows.last).to_contain_text("not asked")
        await rows.first.get_by_role("link", name="entry 2").click()
        await expect(page.locator("#detail-title")).to_have_text("Entry 2: filter")
        await harness.publish(bound("unseen", "n1"))
        await expect(rows).to_have_count(1, timeout=15_000)  # the page stays up to date


async def test_pods_that_wait_for_one_reason_are_one_line(
    page: Page, new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"), hardware("n1"), eco("n1"))
        await harness.publish(
            *(pending(f"job-{number}") for number in range(18)), pending("fast", performance=True)
        )
        await opened(page, harness, "?page=pending")
        rows = page.locator("main tbody tr")
        await expect(rows).to_have_count(2)
        jobs = rows.filter(has_text="and 17 more")
        await jobs.get_by_text("and 17 more").click()
        await jobs.get_by_role("link", name="job-17").click()
        await expect(page.locator("#detail-title")).to_contain_text("job-17")


async def test_what_was_saved_is_an_interval_against_a_named_baseline(
    page: Page, complaints: list[str], new_harness: NewHarness, hour_of_energy: LedgerState
) -> None:
    async with new_harness() as harness:
        harness.fill_ledger(hour_of_energy)
        await opened(page, harness, "?page=energy&hours=6")
        await expect(page.locator("#saved")).to_contain_text("Not computed yet")
        third = SavedRange(0.2, 0.25, 0.3)
        found = Savings(
            computed_ms=1_800_000_000_000,
            position=7,
            from_ms=1_000_000_000_000,
            to_ms=2_800_000_000_000,
            baseline="kube-default",
            policy="joulie-energy",
            pods=1200,
            nodes=200,
            saved=Saved(kwh=SavedRange(-1.0, 2.5, 3.0), share=third, share_per_work=third),
        )
        harness.keep_savings(found)
        await page.reload()
        saved = page.locator("#saved")
        metered = await page.locator("#energy-figures dd .big").first.inner_text()
        kwh = float(metered.split()[0])
        shown = await saved.locator("dd .big").first.inner_text()
        assert float(shown.split()[0]) == pytest.approx(kwh / 3, rel=0.02)  # a quarter of 4/3
        await expect(saved).to_contain_text("25 % less20 % to 30 % less")
        named = saved.locator(".figure", has_text="Between the two simulations")
        await expect(named).to_contain_text("2.50 kWh less1.00 kWh more to 3.00 kWh less")
        await expect(saved).not_to_contain_text("Cost")
        context = page.locator("#saved-against")
        await expect(context).to_contain_text("joulie-energy against kube-default")
        await expect(context).to_contain_text("1,200 pods on the same 200 nodes")
        await expect(context).not_to_contain_text("no saving is certain")

    assert complaints == []


async def test_the_overview_states_what_was_saved_and_never_a_negative_saving(
    page: Page, complaints: list[str], new_harness: NewHarness, hour_of_energy: LedgerState
) -> None:
    async with new_harness() as harness:
        harness.fill_ledger(hour_of_energy)
        await opened(page, harness)
        totals, basis = page.locator("#totals"), page.locator("#basis")
        await expect(totals).to_contain_text("saved is not known: no report was written yet")
        await expect(basis).to_contain_text("joulie ledger")
        await expect(basis).to_contain_text("GRID_SOURCE=")
        await expect(basis).to_contain_text("Energy is complete up to")

        for mid, text in ((0.5, "Saved"), (-0.5, "more")):
            share = SavedRange(mid - 0.1, mid, mid + 0.1)
            harness.keep_savings(
                Savings(
                    computed_ms=time.time_ns() // 1_000_000,
                    position=1,
                    from_ms=0,
                    to_ms=time.time_ns() // 1_000_000,
                    baseline="kube-default",
                    policy="joulie-energy",
                    pods=5,
                    nodes=2,
                    saved=Saved(kwh=share, share=share, share_per_work=share),
                )
            )
            await page.reload()
            await expect(totals).to_contain_text(re.compile(rf"(Used|Saved) \d+\sWh( {text})?"))
            await expect(totals).to_contain_text("no price, no carbon intensity")
            await expect(basis).to_contain_text("against kube-default")
            assert not re.search("[-\u2212]\\d+ W?h", await totals.inner_text())
        await expect(totals).to_contain_text("Used")

    assert complaints == []


def not_ready(name: str) -> NodeSeen:
    return msgspec.structs.replace(node_seen(name), ready=False)


async def test_nodes_that_sleep_have_a_colour_a_count_and_a_word(
    page: Page, complaints: list[str], new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await harness.publish(*(node_seen(name) for name in ("n1", "n2", "n3")))
        await harness.publish(asleep("n2"), asleep("n3"), pending("waits"))
        await harness.publish(not_ready("n2"), not_ready("n3"))
        await harness.publish(waking("n3"))
        await opened(page, harness)
        totals = page.locator("#totals")
        await expect(totals).to_contain_text("1 awake, 1 asleep, 1 waking")
        await expect(totals).to_contain_text("of 1 pending pods")
        for text in ("asleep by a plan", "waking up", "all of the cap is free"):
            await expect(page.locator("#legend")).to_contain_text(text)
        await page.locator("#map").press("ArrowRight")
        await page.locator("#map").press("ArrowRight")
        await expect(page.locator("#map-status")).to_contain_text("n2: unknown, asleep")
        await harness.publish(waking("n2"))
        await expect(totals).to_contain_text("1 awake, 0 asleep, 2 waking")

    assert complaints == []


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
    await expect(chart.get_by_role("status")).to_contain_text(re.compile(r"all meters \S+ k?W"))
    await page.select_option("#by", "namespace")
    await expect(page.locator("main tbody")).to_contain_text("free: what no pod occupies")
    await expect(page).to_have_url(f"{scenario.url}/?page=energy&hours=6")

    assert complaints == []


async def test_the_page_plans_moves_that_make_free_gpus_usable(
    page: Page, complaints: list[str], new_harness: NewHarness
) -> None:
    """On n1 a pod has all cores, and the cards beside it are of no use; it fits on n2."""
    async with new_harness() as harness:
        etl = replace(ask("etl", cores=94), ties=Ties(replaced_by="ReplicaSet"))
        await harness.publish(
            node_seen("n1", gpus=4),
            hardware("n1", gpus=4),
            node_seen("n2"),
            hardware("n2"),
            *(card(f"g{at}", "n1") for at in range(4)),
            PodBound(pod=etl, node="n1"),
        )
        await opened(page, harness)

        free = page.locator("#free-gpus")
        await expect(free).to_contain_text(re.compile(r"4\.00 GPUs free,\s+4\.00 GPUs of no use"))
        await page.locator("#plan-moves").click()
        moves = page.locator("#moves")
        await expect(moves).to_contain_text("1 of 1 pods would move")
        await expect(moves).to_contain_text("Value: 4.00 GPUs of use that were of none")
        await expect(moves).to_contain_text("Cost: 1 pods begin again, with 0.00 GPUs and 94.0")
        await expect(moves.locator("ol li")).to_contain_text("team/etl")
        await expect(moves).to_contain_text("Nothing is evicted")

    assert complaints == []


async def test_the_page_names_cards_that_are_held_without_work_and_the_preset(
    page: Page, complaints: list[str], new_harness: NewHarness
) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1", gpus=1), card("g1", "n1"), plan_made("p1"))
        harness.keep_holders(IdleHolder("n1", "g1", ("team/idler",), 1, 125_000))
        await opened(page, harness)

        gpus = page.locator("#gpus")
        await expect(gpus).to_contain_text("1 held without work, 125 W in all")
        await expect(gpus).to_contain_text("team/idler on n1, 125 W, since")
        await expect(page.locator("body")).to_contain_text("preset headroom")
        await expect(page.locator("#basis")).to_contain_text("Preset headroom.")
        harness.keep_holders()
        await page.reload()
        await expect(gpus).to_contain_text("Of 1 of 1 cards")
        await expect(page.locator("#idle-holders")).to_have_count(0)
        assert complaints == []
