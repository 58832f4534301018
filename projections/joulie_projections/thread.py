"""The one thread in which a process talks to its database, and the patience that it has with it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError

from joulie_bus import metrics
from joulie_bus.logging import get_logger

RETRY_S = 0.5
TELL_EVERY = 20  # tries: a disk that is full over night is told of every ten seconds
# Disk full, locked, deadlock, serialization, restart, connection lost: another try may do.
PASSING = (OperationalError, InterfaceError)
T = TypeVar("T")
log = get_logger("database")


class DatabaseThread:
    """One statement after the other; the event loop goes on meanwhile."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "database")

    async def once(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    async def until_done(self, call: Callable[..., T], *args: Any) -> T:
        """Until the database takes it. Nothing is read on before, so nothing piles up here."""
        refusals = 0
        while True:
            try:
                done = await self.once(call, *args)
            except PASSING as error:
                metrics.DATABASE_RETRIES.inc()
                if not refusals % TELL_EVERY:
                    log.error(
                        "refused", what=call.__name__, why=str(error.orig), times=refusals + 1
                    )
                refusals += 1
                await asyncio.sleep(RETRY_S)
                continue
            if refusals:
                log.warning("accepted", what=call.__name__, after_refusals=refusals)
            return done

    def close(self) -> None:
        """What was begun ends before the database is closed."""
        self._thread.shutdown()
