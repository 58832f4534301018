"""Database calls: inline while the database is fast, otherwise in the thread; with retries."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from joulie_projections.store import database, retrying
from joulie_projections.store import postgres as sessions
from joulie_projections.store.retrying import SLOW_S, DatabaseExecutor
from projections_kit import Postgres

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
        may_end.wait(60)
        return "first"

    first = asyncio.create_task(executor.once(busy))
    await asyncio.to_thread(begun.wait, 60)
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


# --- a connection that computes inside of a transaction -----------------------------------------


IDLE_MS = 100


@pytest.fixture
def impatient(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database whose writers may be idle in a transaction for a moment only."""
    monkeypatch.setattr(sessions, "IDLE_TRANSACTION_MS", IDLE_MS)
    return postgres.migrated()


def stay_idle(url: str, pid: int) -> None:
    """Returns when the server has ended the connection, or was idle for several times that long."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND "
        "now() - state_change < make_interval(secs => %s)"
    )
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as owner:
        while owner.execute(query, (pid, 5 * IDLE_MS / 1000)).fetchone() != (0,):
            time.sleep(0.01)


def test_a_reader_may_compute_for_long_between_two_rows(impatient: str) -> None:
    engine = database.reader(impatient)
    with engine.connect() as db, db.begin():
        stay_idle(impatient, db.scalar(text("SELECT pg_backend_pid()")) or 0)

        assert db.scalar(text("SELECT 1")) == 1
    engine.dispose()


async def test_a_write_is_repeated_after_its_transaction_was_ended_for_being_idle(
    impatient: str, executor: DatabaseExecutor
) -> None:
    engine, pauses = database.writer(impatient), [stay_idle]

    def paused_at_first() -> object:
        with engine.begin() as db:
            pid = db.scalar(text("SELECT pg_backend_pid()")) or 0
            while pauses:
                pauses.pop()(impatient, pid)
            return db.scalar(text("SELECT 1"))

    assert await executor.until_done(paused_at_first) == 1
    engine.dispose()
