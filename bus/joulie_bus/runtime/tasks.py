"""Tasks that somebody owns: they live as long as a block, and are gone when it is left."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def background(
    work: Coroutine[Any, Any, None], name: str
) -> AsyncGenerator[asyncio.Task[None], None]:
    """Runs `work` beside the block; cancelled and awaited at its end."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])  # not `await task`: whose cancellation would that be?
        if not task.cancelled():
            task.result()


async def rung(bell: asyncio.Event, patience_s: float | None = None, gather_s: float = 0.0) -> bool:
    """Waits for the bell, or for as long as there is patience, and silences it. Did it ring?

    Who gathers hears what rings in a short time as one bell: a few together cost less than each.
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
