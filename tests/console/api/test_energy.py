"""The energy of a period, over a real console and the table of the ledger."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import httpx2
import pytest

from joulie_bus.events import AnyEvent
from joulie_bus.testing import bound, node_seen, power, records
from joulie_bus.testing.clock import NOON
from joulie_console.testing import ConsoleHarness
from joulie_projections.energy.report import NOT_SHARED
from joulie_projections.energy.saved import LedgerState

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
PERIOD = {"since": "2020-01-01T00:00:00Z", "until": "2100-01-01T00:00:00Z"}
HOURS = 3


def steady() -> LedgerState:
    """A node at 100 W and one at 300 W with a pod, from noon on, for some hours."""
    state = LedgerState()
    readings = [power("n1", 100), power("n2", 300)] * (HOURS * 60)
    facts: list[AnyEvent] = [node_seen("n1"), node_seen("n2"), bound("runs", "n2"), *readings]
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
    assert found["folded_to"] == 2 * HOURS * 60 + 3


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


async def test_a_period_without_energy_is_empty(new_harness: NewHarness) -> None:
    async with new_harness() as harness:
        harness.fill_ledger(steady())
        async with httpx2.AsyncClient(base_url=harness.url) as client:
            past = {"since": "2020-01-01T00:00:00Z", "until": "2021-01-01T00:00:00Z"}
            found = (await client.get("/v1/energy", params=past)).json()

    assert (found["items"], found["series"], found["meter_kwh"]) == ([], [], 0.0)


async def test_a_period_that_ends_before_it_starts_is_refused(new_harness: NewHarness) -> None:
    async with new_harness() as harness, httpx2.AsyncClient(base_url=harness.url) as client:
        backwards = {"since": PERIOD["until"], "until": PERIOD["since"]}
        answer = await client.get("/v1/energy", params=backwards)

    assert (answer.status_code, "before" in answer.json()["detail"]) == (400, True)
