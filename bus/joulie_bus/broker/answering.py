"""Concurrent replies to requests: each may wait for another program."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from nats.aio.msg import Msg

from joulie_bus.errors import BusError
from joulie_bus.jetstream.connection import Connection
from joulie_bus.runtime.logging import get_logger

Answer = Callable[[bytes], Awaitable[bytes]]  # raises ValueError for what is no request
log = get_logger("bus")


@contextlib.asynccontextmanager
async def answering(
    connection: Connection, subject: str, answer: Answer
) -> AsyncGenerator[None, None]:
    """Replies to requests until the block ends. A failed request is logged and gets no reply."""
    tasks = set[asyncio.Task[None]]()

    async def one(message: Msg) -> None:
        try:
            await connection.send(message.reply, await answer(message.data))
        except (ValueError, BusError) as error:
            log.warning("not_answered", subject=subject, why=str(error))

    async def begin(message: Msg) -> None:
        task = asyncio.create_task(one(message))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async with connection.subscribed(subject, begin):
        yield
