"""Plans, page by page, as far back as their stream goes."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from itertools import chain
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import Engine

from joulie_audit.testing import LogBuilder
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_bus.testing import (
    caps,
    eco,
    hardware,
    node_seen,
    performance,
    plan_made,
    power,
    records,
    until,
)
from joulie_console.api import queries
from joulie_console.stream import event_tail, plans
from joulie_console.stream.event_tail import Journal
from joulie_console.stream.plans import Page, PlanPages
from joulie_console.testing import Stage, showing
from joulie_console.views.past import Past
from joulie_console.views.plan_text import plan_line
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.history.history import History
from joulie_projections.store.store import Store

pytestmark = pytest.mark.anyio
Staging = Callable[..., AbstractAsyncContextManager[Stage]]
NOW = 2**53


@pytest.fixture
async def maker(writer: Engine, tmp_path: Path) -> LogBuilder:
    """Thirty plan events at 2 to 4, 6 to 8, ..., 38 to 40: a plan, n1, n2; facts between them."""
    made = LogBuilder(Store(writer), DecisionLog(writer), Signer.of(tmp_path / "head.key"))
    for number in range(10):
        await made.facts(node_seen("n3") if number == 0 else power("n3", number))
        await made.facts(plan_made(f"p{number}"), eco("n1"), performance("n2"))
    return made


PLANNED = [at for number in range(10) for at in (4 * number + 2, 4 * number + 3, 4 * number + 4)]


@pytest.fixture
async def pages(
    maker: LogBuilder, database_file: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[PlanPages, None]:
    """Memory holds the newest five only, and nobody reads on."""
    monkeypatch.setattr(event_tail, "PLANS_KEPT", 5)
    past = Past(lambda: History.readable(database_file))
    told = Journal(maker.bus, past, dict)
    async with background(told.follow(), "journal"):
        await until(lambda: told.is_ready)
    yield PlanPages(maker.bus, past, told)
    past.close()


def numbers(page: Page) -> list[int]:
    return [line.number for line in page.lines]


async def all_of(pages: PlanPages, node: str, limit: int) -> list[list[int]]:
    """Page after page, as whoever follows `following` sees them."""
    found, before = list[list[int]](), NOW
    while True:
        page = await pages.before(before, node, limit)
        found.append(numbers(page))
        if page.following is None:
            return found
        before = page.following


@pytest.mark.parametrize("limit", [1, 4, 5, 6, 30, 100])
async def test_every_plan_is_on_one_page_and_no_page_is_empty(pages: PlanPages, limit: int) -> None:
    found = await all_of(pages, "", limit)

    assert list(chain(*found)) == PLANNED[::-1]
    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert found[-1]


async def test_a_nodes_history_is_all_of_it(pages: PlanPages) -> None:
    found = await all_of(pages, "n2", 4)

    assert found == [[40, 36, 32, 28], [24, 20, 16, 12], [8, 4]]


async def test_small_chunks_of_the_stream_change_nothing(
    pages: PlanPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "CHUNK", 2)

    assert list(chain(*await all_of(pages, "n1", 3))) == PLANNED[1::3][::-1]


async def test_a_long_search_says_where_the_next_one_goes_on(
    pages: PlanPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "CHUNK", 3)
    monkeypatch.setattr(plans, "LOOKED_AT", 6)
    page = await pages.before(NOW, "nobody", 10)

    assert (numbers(page), page.following) == ([], 26)
    assert await all_of(pages, "nobody", 10) == [[], [], [], []]


@pytest.mark.parametrize(("gone", "oldest"), [(3, 6), (4, 7), (5, 8)])
async def test_what_has_left_the_stream_is_counted_and_the_rest_is_told(
    pages: PlanPages, maker: LogBuilder, gone: int, oldest: int
) -> None:
    maker.broker.trim(Stream.PLAN, gone)
    found = list(chain(*await all_of(pages, "", 7)))

    assert found == [at for at in PLANNED[::-1] if at >= oldest]
    assert pages._journal.plans_gone == gone


async def test_memory_is_enough_for_who_looks_at_the_newest(
    pages: PlanPages, maker: LogBuilder
) -> None:
    maker.broker.recreate(Stream.PLAN)

    assert numbers(await pages.before(NOW, "", 5)) == [40, 39, 38, 36, 35]
    assert numbers(pages.remembered(NOW, "n1", 9)) == [39, 35]


# --- as people ask for them -------------------------------------------------------------------


async def test_a_node_says_where_its_history_goes_on(
    stage_of: Staging, tmp_path: Path, spare: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_tail, "PLANS_KEPT", 2)
    monkeypatch.setattr(queries, "TRANSITIONS", 3)
    async with stage_of() as stage, httpx2.AsyncClient() as client:
        await stage.tell(node_seen("n1"), hardware("n1"))
        for cpu in (40, 50, 60, 70, 80):
            await stage.tell(caps("n1", cpu=cpu))
        async with showing(spare, tmp_path) as url:  # type: ignore[arg-type]
            node = (await client.get(f"{url}/v1/nodes/n1")).json()
            then = (await client.get(f"{url}/v1/nodes/n1?at=5")).json()
            asked = {"node": "n1", "before": node["earlier"]}
            rest = (await client.get(f"{url}/v1/plans", params=asked)).json()

    assert [each["position"] for each in node["transitions"]] == [7, 6]
    assert [each["position"] for each in then["transitions"]] == [5, 4, 3]
    assert [each["position"] for each in rest["items"]] == [5, 4, 3]
    assert (node["plans_gone"], then["earlier"], rest["next"]) == (0, None, None)


def test_a_message_that_its_sender_may_not_write_is_no_line() -> None:
    """The projector has refused it, so it changed nothing that there is to tell of."""
    [plan] = records(eco("n1"))

    assert plan_line(plan, 1) is not None
    assert plan_line(plan._replace(subject="joulie.plan.test.n2"), 1) is None
    assert plan_line(plan._replace(stream=Stream.TEL), 1) is None
