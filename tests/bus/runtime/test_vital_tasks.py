import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Generator
from io import StringIO
from typing import Any

import pytest

from joulie_bus.runtime import logging, vital_tasks
from joulie_bus.runtime.vital_tasks import (
    TaskEnded,
    VitalTask,
    living,
    reporting_ends,
    vital,
    why_not_ready,
)

pytestmark = pytest.mark.anyio
ENDS, RESTARTS = VitalTask.BEAT, VitalTask.SHIP


class Failing:
    """Work that fails each time it is told to, and runs until then."""

    def __init__(self) -> None:
        self.starts = 0
        self.fails = asyncio.Event()
        self.started = asyncio.Event()

    async def __call__(self) -> None:
        self.starts += 1
        self.started.set()
        await self.fails.wait()
        self.fails.clear()
        raise OSError("no disk")

    async def fail(self) -> None:
        """Returns when it has been started again."""
        self.started.clear()
        self.fails.set()
        async with asyncio.timeout(60):
            await self.started.wait()


@pytest.fixture
def lines() -> Generator[StringIO, None, None]:
    kept = StringIO()
    logging.configure("info", "json", "test", kept)
    yield kept
    logging.configure("info", "console", "test")


@pytest.fixture(autouse=True)
async def short_pauses(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None, None]:
    monkeypatch.setattr(vital_tasks, "FIRST_PAUSE_S", 0.001)
    yield
    assert not why_not_ready(), "what a task leaves behind makes the next component unready"


def written(lines: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


async def test_a_block_is_cancelled_and_raises_when_its_task_fails() -> None:
    work = Failing()

    async def block() -> None:
        async with living(ENDS, work):
            work.fails.set()
            await asyncio.Event().wait()

    with pytest.raises(OSError, match="no disk"):
        await block()


async def test_one_line_names_the_task_that_ended_its_component(lines: StringIO) -> None:
    work, ended = Failing(), list[str]()
    work.fails.set()

    async def inner() -> None:
        await vital(ENDS, work)

    with reporting_ends(ended.append), pytest.raises(OSError, match="no disk"):
        await vital(VitalTask.PROJECT, inner)

    line, *more = written(lines)
    assert not more
    assert line["event"] == "task_failed"
    assert line["task"] == "beat"
    assert line["why"] == "OSError: no disk"
    assert line["what"] == "the component ends"
    assert ended[0] == "beat"


async def test_a_failure_within_a_group_of_tasks_is_one_line_too(lines: StringIO) -> None:
    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            work = Failing()
            work.fails.set()
            tasks.create_task(vital(ENDS, work))
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup):
        await vital(VitalTask.PROJECT, group)

    assert [line["task"] for line in written(lines)] == ["beat"]


async def test_a_task_within_one_that_is_restarted_ends_no_component(lines: StringIO) -> None:
    ended, inner, started = list[str](), Failing(), asyncio.Semaphore(0)

    async def outer() -> None:
        started.release()
        async with living(ENDS, inner):
            await asyncio.Event().wait()

    with reporting_ends(ended.append):
        async with living(RESTARTS, outer), asyncio.timeout(60):
            await started.acquire()
            inner.fails.set()
            await started.acquire()

    assert [(line["task"], line["what"]) for line in written(lines)] == [
        ("beat", "ship fails, too"),
        ("ship", "it is restarted in 0.001 s"),
    ]
    assert not ended


async def test_a_task_is_started_again_and_unready_until_it_has_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vital_tasks, "STEADY_S", 60)
    work = Failing()
    async with living(RESTARTS, work):
        await work.started.wait()
        assert not why_not_ready()

        await work.fail()

        assert work.starts == 2
        assert why_not_ready() == "failed and is restarted: ship"


async def test_a_task_that_runs_again_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vital_tasks, "STEADY_S", 0)
    work = Failing()
    async with living(RESTARTS, work), asyncio.timeout(60):
        await work.started.wait()
        await work.fail()

        while why_not_ready():
            await asyncio.sleep(0)


async def test_the_pause_grows_with_each_failure(lines: StringIO) -> None:
    work = Failing()
    async with living(RESTARTS, work):
        await work.started.wait()
        for _ in range(3):
            await work.fail()

    told = [line["what"] for line in written(lines)]
    assert told == [f"it is restarted in {pause} s" for pause in ("0.001", "0.002", "0.004")]


@pytest.mark.parametrize("task", [ENDS, RESTARTS])
async def test_a_task_that_returns_has_failed(task: VitalTask, lines: StringIO) -> None:
    returned = asyncio.Event()

    async def work() -> None:
        returned.set()

    with contextlib.suppress(TaskEnded):
        async with living(task, work), asyncio.timeout(60):
            await returned.wait()
            while not lines.getvalue():
                await asyncio.sleep(0)

    assert written(lines)[0]["why"] == "TaskEnded: it returned"


async def test_a_cancellation_from_elsewhere_is_a_failure() -> None:
    """A cancelled future of a library would otherwise end the task without any sign."""

    async def work() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with pytest.raises(TaskEnded, match="a cancellation came from elsewhere"):
        await vital(ENDS, work)


@pytest.mark.parametrize("task", [ENDS, RESTARTS])
async def test_a_task_that_swallows_its_cancellation_ends_without_a_line(
    task: VitalTask, lines: StringIO
) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            begun.set()
            await asyncio.Event().wait()

    async with living(task, work):
        await begun.wait()

    assert not lines.getvalue()
