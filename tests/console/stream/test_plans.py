"""Plans in pages, as far back as their stream goes."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from itertools import chain
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import Engine

from audit_kit import LogBuilder
from bus_kit import (
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
from console_kit import ConsoleHarness, energy_of, running_console
from joulie_answers.readers import plan_pages as plans
from joulie_answers.readers.facts import in_streams
from joulie_answers.readers.history import HistoryReader
from joulie_answers.readers.plan_pages import Page, PlanPages
from joulie_answers.views.plan_text import plan_line
from joulie_bus.runtime.tasks import background
from joulie_bus.streams.subjects import Stream
from joulie_console.stream import event_tail
from joulie_console.stream.event_tail import EventTail
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.history.history import History
from joulie_projections.store.store import Store

pytestmark = pytest.mark.anyio
NewHarness = Callable[..., AbstractAsyncContextManager[ConsoleHarness]]
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
    """Pages over a tail that keeps five plans and has stopped reading."""
    monkeypatch.setattr(event_tail, "PLANS_KEPT", 5)
    history = HistoryReader(lambda: History.readable(database_file))
    tail = EventTail(maker.bus, history, energy_of(database_file))
    async with background(tail.follow(), "journal"):
        await until(lambda: tail.is_ready)
    yield PlanPages(in_streams(maker.bus, history), history, tail)
    history.close()


def numbers(page: Page) -> list[int]:
    return [line.number for line in page.lines]


async def all_of(pages: PlanPages, node: str, limit: int) -> list[list[int]]:
    """All pages, each after the one that `following` names."""
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


async def test_the_pages_of_a_node_have_all_its_transitions(pages: PlanPages) -> None:
    found = await all_of(pages, "n2", 4)

    assert found == [[40, 36, 32, 28], [24, 20, 16, 12], [8, 4]]


async def test_the_chunk_size_does_not_change_the_pages(
    pages: PlanPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "CHUNK", 2)

    assert list(chain(*await all_of(pages, "n1", 3))) == PLANNED[1::3][::-1]


async def test_a_long_search_returns_where_the_next_one_continues(
    pages: PlanPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "CHUNK", 3)
    monkeypatch.setattr(plans, "MAX_EVENTS_READ", 6)
    page = await pages.before(NOW, "nobody", 10)

    assert (numbers(page), page.following) == ([], 26)
    assert await all_of(pages, "nobody", 10) == [[], [], [], []]


@pytest.mark.parametrize(("gone", "oldest"), [(3, 6), (4, 7), (5, 8)])
async def test_plans_that_left_the_stream_are_counted(
    pages: PlanPages, maker: LogBuilder, gone: int, oldest: int
) -> None:
    maker.broker.trim(Stream.PLAN, gone)
    found = list(chain(*await all_of(pages, "", 7)))

    assert found == [at for at in PLANNED[::-1] if at >= oldest]
    assert pages._tail.plans_gone == gone


async def test_the_newest_plans_need_no_stream(pages: PlanPages, maker: LogBuilder) -> None:
    maker.broker.recreate(Stream.PLAN)

    assert numbers(await pages.before(NOW, "", 5)) == [40, 39, 38, 36, 35]
    assert numbers(pages.from_memory(NOW, "n1", 9)) == [39, 35]


# --- through the API --------------------------------------------------------------------------


async def test_a_node_has_the_position_of_its_earlier_transitions(
    new_harness: NewHarness, tmp_path: Path, spare_broker: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_tail, "PLANS_KEPT", 2)
    async with new_harness() as harness, httpx2.AsyncClient() as client:
        await harness.publish(node_seen("n1"), hardware("n1"))
        for cpu in (40, 50, 60, 70, 80):
            await harness.publish(caps("n1", cpu=cpu))
        async with running_console(spare_broker, tmp_path) as url:  # type: ignore[arg-type]
            node = (await client.get(f"{url}/v1/nodes/n1?transitions=3")).json()
            then = (await client.get(f"{url}/v1/nodes/n1?at=5&transitions=3")).json()
            asked = {"node": "n1", "before": node["earlier"]}
            rest = (await client.get(f"{url}/v1/plans", params=asked)).json()

    assert [each["position"] for each in node["transitions"]] == [7, 6]
    assert [each["position"] for each in then["transitions"]] == [5, 4, 3]
    assert [each["position"] for each in rest["items"]] == [5, 4, 3]
    assert (node["plans_gone"], then["earlier"], rest["next"]) == (0, None, None)


def test_an_unauthorized_message_is_not_a_plan() -> None:
    """The projector has quarantined it, so it changed nothing."""
    [plan] = records(eco("n1"))

    assert plan_line(plan, 1) is not None
    assert plan_line(plan._replace(subject="joulie.plan.test.n2"), 1) is None
    assert plan_line(plan._replace(stream=Stream.TEL), 1) is None
