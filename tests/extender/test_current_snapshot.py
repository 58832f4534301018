"""Answers use a snapshot whose node terms are computed, and soon the newest one."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from extender_kit import performing, snapshot_of
from joulie_extender import current_snapshot as module
from joulie_extender.catalogue.weights import Weights
from joulie_extender.current_snapshot import NO_SNAPSHOT, SHARE, CurrentSnapshot
from joulie_extender.decide.node_terms import node_terms_of
from joulie_extender.terms.term import NodeTerms
from joulie_projections.state.completeness import NEVER_MS, ViewAges
from joulie_projections.twin.columns import TwinColumns
from joulie_projections.view.view import ViewSnapshot

pytestmark = pytest.mark.anyio
WEIGHTS = Weights()


def at(position: int) -> ViewSnapshot:
    return snapshot_of(performing("a", 0, position), performing("b", 1, 100), position=position)


class ByHand:
    """A view that changes only when the test says so."""

    def __init__(self) -> None:
        self.newest, self.is_ready = NO_SNAPSHOT, False
        self.ages = ViewAges(0, 0)
        self.moves = self.nodes_changed = 0
        self._moved = asyncio.Event()

    def snapshot(self) -> ViewSnapshot:
        return self.newest

    def now_ns(self) -> int:
        return time.time_ns()

    def ages_of(self, seen: ViewSnapshot) -> ViewAges:
        return self.ages

    async def moved_since(self, moves: int) -> int:
        while self.moves <= moves:
            await self._moved.wait()
            self._moved.clear()
        return self.moves

    def move(self, newest: ViewSnapshot, *, is_ready: bool = True) -> None:
        self.newest, self.is_ready = newest, is_ready
        self.moves += 1
        self._moved.set()


@contextlib.asynccontextmanager
async def following() -> AsyncGenerator[tuple[CurrentSnapshot, ByHand], None]:
    lookout, view = CurrentSnapshot(WEIGHTS), ByHand()
    task = asyncio.create_task(lookout.follow(view))
    await asyncio.sleep(0)
    try:
        yield lookout, view
    finally:
        task.cancel()


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARE", 1.0)
    monkeypatch.setattr(module, "UNASKED_S", 0.0)
    monkeypatch.setattr(module, "YOUNG_S", 0.0)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def ready(lookout: CurrentSnapshot) -> None:
    async with asyncio.timeout(60):
        while not lookout.is_ready:
            await asyncio.sleep(0.01)


async def test_until_a_twin_columns_is_ready_there_is_nothing_to_be_seen() -> None:
    async with following() as (lookout, view):
        view.move(at(1), is_ready=False)
        await settled()
        assert (lookout.is_ready, lookout.snapshot()) == (False, NO_SNAPSHOT)

        view.move(at(1))
        await settled()
        assert (lookout.is_ready, lookout.snapshot().position) == (True, 1)


async def test_it_is_not_ready_before_the_ages_of_the_view_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FIRST_HEARTBEAT_S", 60.0)

    async with following() as (lookout, view):
        view.ages = ViewAges(NEVER_MS, NEVER_MS)
        view.move(at(1))
        await asyncio.sleep(0.1)
        assert not lookout.is_ready

        view.ages = ViewAges(200, 300)
        await ready(lookout)
        assert (lookout.snapshot().age_ms, lookout.snapshot().behind_ms) == (200, 300)


async def test_it_is_ready_with_unknown_ages_while_no_projector_sends_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FIRST_HEARTBEAT_S", 0.05)

    async with following() as (lookout, view):
        view.ages = ViewAges(NEVER_MS, NEVER_MS)
        view.move(at(1))
        await ready(lookout)
        assert lookout.snapshot().behind_ms == NEVER_MS


async def test_an_answer_brings_the_snapshot_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNASKED_S", 60.0)

    async with following() as (lookout, view):
        view.move(at(1))
        await settled()
        view.move(at(2))

        assert lookout.snapshot().position == 2
        assert WEIGHTS in lookout.snapshot().twin_columns.memo


async def test_changes_of_few_nodes_wait_for_an_answer_that_asks_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "UNASKED_S", 60.0)
    computed = list[int]()

    def counted(columns: TwinColumns, *more: Any) -> NodeTerms:
        computed.append(len(columns))
        return node_terms_of(columns, *more)

    monkeypatch.setattr(module, "node_terms_of", counted)
    async with following() as (lookout, view):
        for position in range(1, 10):
            view.move(at(position))
            await settled()
        assert len(computed) == 1

        assert lookout.snapshot().position == 9
        assert len(computed) == 2


async def test_an_answer_does_not_wait_for_the_changes_of_many_nodes() -> None:
    async with following() as (lookout, view):
        view.move(at(1))
        await settled()
        view.move(at(2))
        view.nodes_changed = module.MOST_CHANGED + 1
        assert lookout.snapshot().position == 1

        await settled()
        assert lookout.snapshot().position == 2


async def test_a_young_snapshot_answers_the_second_question_about_a_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "UNASKED_S", 60.0)

    async with following() as (lookout, view):
        view.move(at(1))
        await settled()
        monkeypatch.setattr(module, "YOUNG_S", 60.0)
        view.move(at(2))
        assert lookout.snapshot().position == 1

        monkeypatch.setattr(module, "YOUNG_S", 0.0)
        assert lookout.snapshot().position == 2


async def test_a_snapshot_that_an_answer_renewed_is_not_replaced_by_an_older_one() -> None:
    async with following() as (lookout, view):
        view.move(at(1))
        await settled()
        view.move(at(2))
        await asyncio.sleep(0)  # the task has taken it, and not computed its terms
        view.move(at(3))
        assert lookout.snapshot().position == 3

        await settled()
        assert lookout.snapshot().position == 3


async def test_answers_that_come_between_see_whole_columns_with_their_terms() -> None:
    async with following() as (lookout, view):
        view.move(at(1))
        await settled()
        for position in range(2, 5):
            view.move(at(position))
            for _ in range(5):
                now = lookout.snapshot()
                assert now.position == position
                assert WEIGHTS in now.twin_columns.memo, "an answer would have to work it out"
                await asyncio.sleep(0)


async def test_a_view_that_never_rests_takes_a_quarter_of_a_core_at_most_between_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cost_s, looks = 0.002, 0

    def costly(*_: object) -> None:
        nonlocal looks
        looks += 1
        until = time.thread_time() + cost_s
        while time.thread_time() < until:
            pass

    monkeypatch.setattr(module, "SHARE", SHARE)
    monkeypatch.setattr(module, "node_terms_of", costly)
    async with following() as (_, view):
        began, position = time.monotonic(), 0
        while time.monotonic() < began + 0.3 or looks < 3:
            view.move(at(position := position + 1))
            await asyncio.sleep(0)

        took_s = time.monotonic() - began

    assert looks <= (took_s + cost_s) * SHARE / cost_s + 1


async def test_a_view_that_goes_back_to_an_older_database_is_followed() -> None:
    async with following() as (lookout, view):
        for position in (5, 3):
            view.move(at(position))
            await settled()

        assert lookout.snapshot().position == 3


async def test_the_age_is_that_of_the_view_and_grows_while_nothing_moves() -> None:
    async with following() as (lookout, view):
        view.move(at(1))
        await settled()
        view.ages = ViewAges(4711, 5000)

        assert lookout.snapshot() == at(1)._replace(
            twin_columns=lookout.snapshot().twin_columns, age_ms=4711, behind_ms=5000
        )


async def test_a_twin_columns_that_cannot_be_thought_through_is_seen_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError

    async with following() as (lookout, view):
        monkeypatch.setattr(module, "node_terms_of", failing)
        view.move(at(1))
        await settled()
        monkeypatch.setattr(module, "node_terms_of", node_terms_of)
        assert (lookout.snapshot().position, lookout.snapshot().twin_columns.memo) == (1, {})

        view.move(at(2))
        await settled()
        assert WEIGHTS in lookout.snapshot().twin_columns.memo
