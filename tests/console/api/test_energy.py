"""The energy of a period, over a real console and the table of the ledger."""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import httpx2
import msgspec
import pytest

from bus_kit import bound, card, node_seen, power, records
from bus_kit.clock import NOON
from console_kit import ConsoleHarness
from joulie_bus.events import AnyEvent
from joulie_projections.energy.report import NOT_ON_CARDS, NOT_SHARED
from joulie_projections.energy.saved import LedgerState
from joulie_projections.energy.savings import Saved, SavedRange, Savings

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
PERIOD = {"since": "2020-01-01T00:00:00Z", "until": "2100-01-01T00:00:00Z"}
HOURS = 3
HOUR_NS = 3_600_000_000_000
DAY_NS = 86_400 * 10**9
SAVINGS = Savings(
    computed_ms=1,
    position=7,
    from_ms=0,
    to_ms=3_600_000,
    baseline="kube-default",
    policy="joulie-energy",
    pods=5,
    nodes=2,
    saved=Saved(
        kwh=SavedRange(1.0, 2.0, 3.0),
        share=SavedRange(0.1, 0.2, 0.3),
        share_per_work=SavedRange(0.1, 0.2, 0.3),
    ),
)


def steady() -> LedgerState:
    """A node at 100 W and one at 300 W with a pod, from noon on, for some hours."""
    state = LedgerState()
    readings = [power("n1", 100), power("n2", 300)] * (HOURS * 60)
    seen: list[AnyEvent] = [node_seen("n1"), node_seen("n2", gpus=1), card("GPU-1", "n2")]
    facts: list[AnyEvent] = [*seen, bound("runs", "n2"), *readings]
    state.fold(records(*facts, step_s=30), ())
    return state


async def test_energy_is_reported_by_node_with_a_series(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        harness.fill_ledger(steady())
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            found = (await client.get("/v1/energy", params={"by": "node", **PERIOD})).json()

    assert [item["name"] for item in found["items"]] == ["n2", "n1"]
    assert sum(item["kwh"] for item in found["items"]) == pytest.approx(found["meter_kwh"])
    assert found["meter_kwh"] == pytest.approx(0.4 * HOURS, rel=0.02)
    assert sum(point[2] + point[3] for point in found["series"]) == pytest.approx(
        found["meter_kwh"]
    )
    starts = [point[0] for point in found["series"]]
    assert starts == sorted(starts)
    assert starts[0] <= NOON // 1_000_000 < starts[0] + 3_600_000
    assert found["folded_to"] == 2 * HOURS * 60 + 4


async def test_the_shares_of_namespaces_and_the_rest_are_the_whole(
    new_harness: NewHarness,
) -> None:
    async with new_harness() as harness:
        harness.fill_ledger(steady())
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            found = (await client.get("/v1/energy", params=PERIOD)).json()

    assert {item["name"] for item in found["items"]} == {"team", NOT_SHARED}
    assert sum(item["kwh"] for item in found["items"]) == pytest.approx(found["meter_kwh"])
    assert (found["cost"], found["kgco2e"]) == (None, None)


async def test_an_hour_that_the_ledger_began_within_has_the_power_of_its_readings(
    new_harness: NewHarness,
) -> None:
    """The readings of 400 W begin 46 minutes after an hour has begun, and between two minutes that
    are kept. Over the whole hour they are 68 W."""
    async with new_harness() as harness:
        harness.fill_ledger(steady())
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            found = (await client.get("/v1/energy", params=PERIOD)).json()

    start, end, pods, idle, *_ = found["series"][0]
    assert found["from_ms"] == start > NOON // 1_000_000 - 300_000
    assert 0.25 < (pods + idle) * 3_600_000 / (end - start) <= 0.4


async def test_the_first_interval_begins_with_the_log(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        await harness.publish(node_seen("n1"))
        began_ns = harness.commits()[0].committed_at
        state = LedgerState()
        facts: list[AnyEvent] = [node_seen("n1"), *[power("n1", 100)] * 3]
        state.fold(records(*facts, start_s=(began_ns - NOON) / 1e9), ())
        harness.fill_ledger(state)
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            found = (await client.get("/v1/energy", params={"by": "node", **PERIOD})).json()

    assert found["from_ms"] == found["series"][0][0] == began_ns // 1_000_000


async def test_cards_and_what_is_on_no_card_are_the_whole(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        harness.fill_ledger(steady())
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            found = (await client.get("/v1/energy", params={"by": "card", **PERIOD})).json()

    assert {item["name"] for item in found["items"]} == {"n2/GPU-1", NOT_ON_CARDS}
    assert sum(item["kwh"] for item in found["items"]) == pytest.approx(found["meter_kwh"])
    (card,) = (item for item in found["items"] if item["name"] != NOT_ON_CARDS)
    assert 0 < card["modelled_kwh"] == pytest.approx(card["kwh"])


async def test_what_was_saved_is_that_of_the_newest_report(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        harness.fill_ledger(steady())
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            before = (await client.get("/v1/energy", params=PERIOD)).json()["saved"]
            harness.keep_savings(SAVINGS)
            later = msgspec.structs.replace(SAVINGS, saved=None, why="the log has no pods")
            found = (await client.get("/v1/energy", params=PERIOD)).json()["saved"]
            harness.keep_savings(later)
            last = (await client.get("/v1/energy", params=PERIOD)).json()["saved"]

    assert before is None
    assert found["kwh"] == {"low": 1.0, "mid": 2.0, "high": 3.0}
    assert (found["baseline"], found["cost"], found["why"]) == ("kube-default", None, "")
    assert (last["kwh"], last["why"]) == (None, "the log has no pods")


async def test_an_answer_changes_with_the_ledger_although_no_fact_arrives(
    new_harness: NewHarness,
) -> None:
    async with new_harness() as harness, httpx2.AsyncClient(base_url=harness.url) as client:
        before = await client.get("/v1/energy", params=PERIOD)
        known = {"If-None-Match": before.headers["ETag"]}
        same = await client.get("/v1/energy", params=PERIOD, headers=known)
        harness.fill_ledger(steady())
        after = await client.get("/v1/energy", params=PERIOD, headers=known)

    assert (same.status_code, after.status_code) == (304, 200)
    assert (before.json()["meter_kwh"], after.json()["meter_kwh"] > 0) == (None, True)


async def test_a_period_without_energy_is_empty(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        harness.fill_ledger(steady())
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            past = {"since": "2020-01-01T00:00:00Z", "until": "2021-01-01T00:00:00Z"}
            found = (await client.get("/v1/energy", params=past)).json()

    assert (found["items"], found["series"], found["meter_kwh"]) == ([], [], None)


async def test_a_period_that_ends_before_it_starts_is_refused(new_harness: NewHarness) -> None:
    async with new_harness() as harness, httpx2.AsyncClient(base_url=harness.url) as client:
        backwards = {"since": PERIOD["until"], "until": PERIOD["since"]}
        answer = await client.get("/v1/energy", params=backwards)

    assert (answer.status_code, "before" in answer.json()["detail"]) == (400, True)


async def test_without_a_report_of_today_nothing_is_saved_today(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        harness.fill_ledger(steady())
        harness.keep_savings(SAVINGS)  # of an hour in 1970
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            found = (await client.get("/v1/saved")).json()

    assert found["complete_to_ms"] > 0
    assert found["today"]["from_ms"] % 86_400_000 == 0
    assert found["month"]["from_ms"] <= found["today"]["from_ms"]
    for period in (found["today"], found["month"]):
        assert period["saved_kwh"] is None
        assert period["why"] == "the newest report is of another time"


async def test_energy_of_today_is_compared_by_the_share_of_the_newest_report(
    new_harness: NewHarness,
) -> None:
    now = time.time_ns()
    midnight_ns = now - now % DAY_NS
    state = LedgerState()
    facts: list[AnyEvent] = [node_seen("n1"), power("n1", 100), power("n1", 100)]
    state.fold(records(*facts, start_s=(midnight_ns - NOON) / 1e9, step_s=1), ())
    savings = msgspec.structs.replace(SAVINGS, from_ms=0, to_ms=now // 1_000_000)
    async with new_harness() as harness:
        harness.fill_ledger(state)
        harness.keep_savings(savings)
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            found = (await client.get("/v1/saved")).json()

    today = found["today"]
    assert today["meter_kwh"] == pytest.approx(100 / 3_600_000)
    assert today["saved_kwh"]["mid"] == pytest.approx(today["meter_kwh"] / 4)
    assert today["saved_cost"] is None
    assert today["to_ms"] == found["complete_to_ms"] == midnight_ns // 1_000_000 + 2000
    assert found["report"]["baseline"] == "kube-default"


async def test_one_figure_says_what_was_saved(new_harness: NewHarness) -> None:
    """The energy of today is all that the ledger has: the page of energy has its figure."""
    now = time.time_ns()
    midnight_ns = now - now % DAY_NS
    state = LedgerState()
    facts: list[AnyEvent] = [node_seen("n1"), power("n1", 100), power("n1", 100)]
    state.fold(records(*facts, start_s=(midnight_ns - NOON) / 1e9, step_s=1), ())
    savings = msgspec.structs.replace(SAVINGS, from_ms=0, to_ms=now // 1_000_000)
    async with new_harness() as harness:
        harness.fill_ledger(state)
        harness.keep_savings(savings)
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            today = (await client.get("/v1/saved")).json()["today"]
            found = (await client.get("/v1/energy", params={"hours": 25})).json()

    figures = ("meter_kwh", "saved_kwh", "saved_cost", "saved_kgco2e", "uncompared_kwh", "why")
    assert found["saved_in_period"]["saved_kwh"]["mid"] > 0
    for name in figures:
        assert found["saved_in_period"][name] == today[name], name
    assert found["saved_in_period"]["meter_kwh"] == found["meter_kwh"]


@pytest.mark.parametrize("by", ["namespace", "node"])
async def test_power_is_shown_by_minutes_where_some_hours_are_known(
    new_harness: NewHarness, by: str
) -> None:
    """A node draws 3 kW for half an hour, then 300 W for another one. By hours, as a long period
    is read, it draws the same all the time."""
    state = LedgerState()
    readings = [power("n1", 3000)] * 60 + [power("n1", 300)] * 60
    now = time.time_ns()
    hour_ns = now - now % HOUR_NS - HOUR_NS
    facts: list[AnyEvent] = [node_seen("n1"), *readings]
    state.fold(records(*facts, start_s=(hour_ns - NOON) / 1e9, step_s=29.5), ())
    async with new_harness() as harness:
        harness.fill_ledger(state)
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            found = (await client.get("/v1/energy", params={"hours": 720, "by": by})).json()

    watts = [
        (pods + idle) * 3.6e9 / (end - start) for start, end, pods, idle, *_ in found["series"]
    ]
    assert len(watts) >= 10
    assert max(watts) == pytest.approx(3000, rel=0.05)
    assert min(watts) == pytest.approx(300, rel=0.05)
    whole = sum(point[2] + point[3] for point in found["series"])
    assert whole == pytest.approx(found["meter_kwh"])
