"""Concurrent replies to requests: each may wait for another program."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from joulie_bus.errors import BusError
from joulie_bus.jetstream.connection import Connection
from joulie_bus.runtime.logging import get_logger

Answer = Callable[[bytes], Awaitable[bytes]]  # raises ValueError for what is no request
AT_ONCE = 32  # answers
log = get_logger("bus")


@contextlib.asynccontextmanager
async def answering(
    connection: Connection, subject: str, answer: Answer, group: str = ""
) -> AsyncGenerator[None, None]:
    """Replies to requests until the block ends. A failed request is logged and gets no reply. Of
    the members of a group, one gets each request.

    Requests of a connection that was lost are dropped: thousands of them in the queue would delay
    those of the next connection.
    """
    tasks, free = set[asyncio.Task[None]](), asyncio.Semaphore(AT_ONCE)

    def is_awaited(losses: int) -> bool:
        return connection.is_connected and connection.losses == losses

    async def one(message: Msg, losses: int) -> None:
        async with free:
            if not is_awaited(losses):
                return
            try:
                reply = await answer(message.data)
                if is_awaited(losses):
                    await connection.send(message.reply, reply)
            except (ValueError, BusError, NatsError) as error:
                log.warning("not_answered", subject=subject, why=str(error))

    async def begin(message: Msg) -> None:
        task = asyncio.create_task(one(message, connection.losses))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async with connection.subscribed(subject, begin, group=group):
        yield
