"""Tasks that belong to a block: they are cancelled and awaited when the block ends."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def background(
    work: Coroutine[Any, Any, None], name: str
) -> AsyncGenerator[asyncio.Task[None], None]:
    """Runs `work` beside the block, and cancels and awaits it at the end.

    If `work` fails, the block is cancelled and raises that error at once. A task that must not
    fail is run by `vital_tasks.living`.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(work, name=name)
            yield task
            task.cancel()
    except BaseExceptionGroup as group:
        first, *others = group.exceptions
        if others:
            raise
        raise first from None  # as if the block had raised it itself


async def rung(bell: asyncio.Event, patience_s: float | None = None, gather_s: float = 0.0) -> bool:
    """Waits until the bell is set or the time is over, and clears it. Returns whether it was set.

    With `gather_s`, several signals within that time count as one, which saves wake-ups.
    """
    if patience_s is None:
        await bell.wait()
    elif not bell.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await bell.wait()
    rang = bell.is_set()
    if rang and gather_s:
        await asyncio.sleep(gather_s)
    bell.clear()
    return rang
