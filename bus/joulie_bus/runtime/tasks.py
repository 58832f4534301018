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


async def wait_and_clear(
    event: asyncio.Event, timeout_s: float | None = None, gather_s: float = 0.0
) -> bool:
    """Waits until the event is set or the time is over, and clears it. Returns whether it was set.

    With `gather_s`, several signals within that time count as one, which saves wake-ups.
    """
    if timeout_s is None:
        await event.wait()
    elif not event.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()
    is_set = event.is_set()
    if is_set and gather_s:
        await asyncio.sleep(gather_s)
    event.clear()
    return is_set
