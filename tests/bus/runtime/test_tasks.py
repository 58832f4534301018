import asyncio

import pytest

from joulie_bus.runtime.tasks import background, wait_and_clear

pytestmark = pytest.mark.anyio


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_the_work_runs_beside_the_block() -> None:
    ran = asyncio.Event()

    async def work() -> None:
        ran.set()

    async with background(work(), "work"), asyncio.timeout(60):
        await ran.wait()


async def test_the_work_is_over_when_the_block_is_left() -> None:
    async with background(for_ever(), "work") as task:
        assert not task.done()

    assert task.cancelled()


async def test_the_work_is_over_when_the_block_fails() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def fail_beside_it() -> None:
        async with background(for_ever(), "work") as task:
            tasks.append(task)
            raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await fail_beside_it()

    assert tasks[0].cancelled()


async def test_work_that_failed_says_so_at_the_end_of_the_block() -> None:
    async def work() -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        async with background(work(), "work") as task:
            await asyncio.wait([task])


async def test_a_task_cancelled_while_its_work_ends_stays_cancelled() -> None:
    ending, may_end = asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await for_ever()
        finally:
            ending.set()
            await may_end.wait()

    async def owner() -> None:
        async with background(slow_to_end(), "work"):
            await asyncio.sleep(0)

    task = asyncio.create_task(owner())
    await ending.wait()
    task.cancel()
    may_end.set()
    await asyncio.wait([task])

    assert task.cancelled()


async def test_an_event_is_seen_once_and_cleared() -> None:
    wakeup = asyncio.Event()
    wakeup.set()

    assert await wait_and_clear(wakeup, 5)
    assert not wakeup.is_set()


async def test_events_while_gathering_count_as_one() -> None:
    wakeup = asyncio.Event()
    wakeup.set()
    waiting = asyncio.create_task(wait_and_clear(wakeup, 5, 0.01))
    await asyncio.sleep(0)
    wakeup.set()

    assert await waiting
    assert not wakeup.is_set()


async def test_waiting_ends_without_an_event() -> None:
    assert not await wait_and_clear(asyncio.Event(), 0.01)
