"""How a process talks to its database: one call after the other, and with patience.

In a thread, so that the event loop goes on meanwhile. What is small and quick may run on the loop
itself: handing it over and back costs more than it does (docs/decisions/0028).
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    InterfaceError,
    OperationalError,
    StatementError,
)

from joulie_bus.errors import Unwritable
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger

RETRY_S = 0.5
SLOW_S = 0.01  # a call that took longer: the next one waits in the thread
LOG_EVERY = 20  # tries: a disk that is full over night is told of every ten seconds
# Disk full, locked, deadlock, serialization, restart, connection lost: another try may do.
TRANSIENT = (OperationalError, InterfaceError)
# Of SQLSTATE: data exceptions, and limits of the program (an index entry that is too long).
_PERMANENT = ("22", "54")
T = TypeVar("T")
log = get_logger("database")


class DatabaseExecutor:
    """One call after the other, wherever each of them runs."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "database")
        self._alone = Lock()
        self._is_quick = False  # so was the last call

    async def once(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._in_turn, call, args
        )

    async def try_inline(self, call: Callable[..., T], *args: Any) -> T:
        """Here and now; until done in the thread if the database is slow or busy."""
        if self._is_quick and self._alone.acquire(blocking=False):
            try:
                return self._timed(call, args)
            except TRANSIENT:
                metrics.DATABASE_RETRIES.inc()
            finally:
                self._alone.release()
        return await self.until_done(call, *args)

    async def until_done(self, call: Callable[..., T], *args: Any) -> T:
        """Until the database takes it. Nothing is read on before, so nothing piles up here."""
        refusals = 0
        while True:
            try:
                done = await self.once(call, *args)
            except TRANSIENT as error:
                metrics.DATABASE_RETRIES.inc()
                if not refusals % LOG_EVERY:
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

    def _in_turn(self, call: Callable[..., T], args: tuple[Any, ...]) -> T:
        with self._alone:
            return self._timed(call, args)

    def _timed(self, call: Callable[..., T], args: tuple[Any, ...]) -> T:
        started = time.monotonic()
        try:
            return call(*args)
        except Exception as error:
            if is_permanent(error):
                raise Unwritable(call.__name__, _first_line(error)) from error
            raise
        finally:
            self._is_quick = time.monotonic() - started < SLOW_S


def is_permanent(error: Exception) -> bool:
    """Will the same values be refused at every try? Another try does not help then."""
    if isinstance(error, DBAPIError):
        state = getattr(error.orig, "sqlstate", None) or ""
        return isinstance(error, DataError) or state.startswith(_PERMANENT)
    return isinstance(error, StatementError | ValueError | TypeError | OverflowError)


def _first_line(error: Exception) -> str:
    """Without the statement and its values, which may be megabytes."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    told = str(cause).strip() or repr(cause)
    return f"{type(cause).__name__}: {told.splitlines()[0][:300]}"
