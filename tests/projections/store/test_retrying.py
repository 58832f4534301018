"""Where a call to the database runs: small and quick here, everything else beside the loop."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator

import pytest
from sqlalchemy.exc import OperationalError

from joulie_projections.store import retrying
from joulie_projections.store.retrying import SLOW_S, DatabaseExecutor

pytestmark = pytest.mark.anyio


@pytest.fixture
async def quick() -> AsyncGenerator[DatabaseExecutor, None]:
    made = DatabaseExecutor()
    await made.once(runs_here)  # which was quick
    yield made
    made.close()


def runs_here() -> bool:
    return threading.current_thread() is threading.main_thread()


def slowly() -> bool:
    time.sleep(SLOW_S * 2)
    return runs_here()


async def test_what_is_wanted_at_once_runs_on_the_loop(quick: DatabaseExecutor) -> None:
    assert await quick.try_inline(runs_here)
    assert not await quick.once(runs_here)
    assert not await quick.until_done(runs_here)


async def test_the_loop_does_not_wait_for_a_database_of_which_nothing_is_known() -> None:
    unknown = DatabaseExecutor()

    assert not await unknown.try_inline(runs_here)
    unknown.close()


async def test_after_a_slow_call_the_loop_is_left_alone_until_calls_are_quick_again(
    quick: DatabaseExecutor,
) -> None:
    assert await quick.try_inline(slowly)
    assert not await quick.try_inline(slowly)
    assert not await quick.try_inline(runs_here)  # which was quick
    assert await quick.try_inline(runs_here)


async def test_two_calls_never_run_at_the_same_time(quick: DatabaseExecutor) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def busy() -> str:
        begun.set()
        goes_on.wait(5)
        return "first"

    first = asyncio.create_task(quick.once(busy))
    await asyncio.to_thread(begun.wait, 5)
    second = asyncio.create_task(quick.try_inline(runs_here))
    await asyncio.sleep(0.01)  # the loop is free meanwhile

    assert not second.done()
    goes_on.set()
    assert (await first, await second) == ("first", False)


async def test_what_is_refused_here_is_tried_again_in_the_thread(
    quick: DatabaseExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "RETRY_S", 0.001)
    tried: list[bool] = []

    def locked() -> int:
        tried.append(runs_here())
        if len(tried) < 4:
            raise OperationalError("BEGIN", None, Exception("database is locked"))
        return len(tried)

    assert await quick.try_inline(locked) == 4
    assert tried == [True, False, False, False]


async def test_what_no_patience_mends_is_raised_at_once(quick: DatabaseExecutor) -> None:
    def broken() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        await quick.try_inline(broken)
    assert await quick.try_inline(runs_here)
