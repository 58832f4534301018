"""Database calls: inline while the database is fast, otherwise in the thread; with retries."""

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
async def executor() -> AsyncGenerator[DatabaseExecutor, None]:
    made = DatabaseExecutor()
    await made.once(runs_here)  # a quick call
    yield made
    made.close()


def runs_here() -> bool:
    return threading.current_thread() is threading.main_thread()


def slowly() -> bool:
    time.sleep(SLOW_S * 2)
    return runs_here()


async def test_an_inline_call_runs_on_the_loop(executor: DatabaseExecutor) -> None:
    assert await executor.try_inline(runs_here)
    assert not await executor.once(runs_here)
    assert not await executor.until_done(runs_here)


async def test_the_first_call_runs_in_the_thread() -> None:
    unknown = DatabaseExecutor()

    assert not await unknown.try_inline(runs_here)
    unknown.close()


async def test_after_a_slow_call_calls_run_in_the_thread_until_one_is_quick(
    executor: DatabaseExecutor,
) -> None:
    assert await executor.try_inline(slowly)
    assert not await executor.try_inline(slowly)
    assert not await executor.try_inline(runs_here)  # a quick call
    assert await executor.try_inline(runs_here)


async def test_two_calls_never_run_at_the_same_time(executor: DatabaseExecutor) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def busy() -> str:
        begun.set()
        may_end.wait(5)
        return "first"

    first = asyncio.create_task(executor.once(busy))
    await asyncio.to_thread(begun.wait, 5)
    second = asyncio.create_task(executor.try_inline(runs_here))
    await asyncio.sleep(0.01)  # the loop is free meanwhile

    assert not second.done()
    may_end.set()
    assert (await first, await second) == ("first", False)


async def test_an_inline_call_that_fails_is_retried_in_the_thread(
    executor: DatabaseExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "RETRY_S", 0.001)
    tried: list[bool] = []

    def locked() -> int:
        tried.append(runs_here())
        if len(tried) < 4:
            raise OperationalError("BEGIN", None, Exception("database is locked"))
        return len(tried)

    assert await executor.try_inline(locked) == 4
    assert tried == [True, False, False, False]


async def test_a_permanent_error_is_raised_without_a_retry(executor: DatabaseExecutor) -> None:
    def broken() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        await executor.try_inline(broken)
    assert await executor.try_inline(runs_here)
