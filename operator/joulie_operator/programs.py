"""Runs programs of the administrator: they have no input and no shell."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def running(words: Sequence[str]) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """One that still runs at the end of the block is killed, with all processes that it started.
    Raises OSError if it cannot be run.
    """
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
