"""How many queries of the history run and wait, and for how long."""

import asyncio
import contextlib
import threading
from collections.abc import Generator
from typing import cast

import pytest

from joulie_answers.readers.history import MAX_QUERIES, HistoryReader
from joulie_bus.errors import QueryRefused
from joulie_projections.history.history import History

pytestmark = pytest.mark.anyio


@contextlib.contextmanager
def opened() -> Generator[History, None, None]:
    yield cast(History, None)


async def test_queries_beyond_the_limit_are_refused_at_once_and_later_ones_answered() -> None:
    reader, may_end = HistoryReader(opened), threading.Event()
    waiting = [
        asyncio.ensure_future(reader.run(lambda _: may_end.wait())) for _ in range(MAX_QUERIES)
    ]
    await asyncio.sleep(0)

    with pytest.raises(QueryRefused, match="32 queries run or wait"):
        await reader.run(lambda _: True)
    may_end.set()

    assert all(await asyncio.gather(*waiting))
    assert await reader.run(lambda _: True)
    reader.close()


async def test_a_query_that_takes_too_long_is_refused_and_one_that_waits_is_never_run() -> None:
    reader, may_end, ran = HistoryReader(opened, deadline_s=0.05), threading.Event(), list[int]()
    slow = [asyncio.ensure_future(reader.run(lambda _: may_end.wait())) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(QueryRefused, match=r"within 0\.05 s"):
        await reader.run(lambda _: ran.append(1))
    assert {type(each) for each in await asyncio.gather(*slow, return_exceptions=True)} == {
        QueryRefused
    }
    may_end.set()
    reader.close()  # returns when all threads have ended
    assert ran == []
