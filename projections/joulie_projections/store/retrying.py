"""Runs the database calls of a process: one at a time, with retries.

Calls run in a thread, so that they do not block the event loop. Small calls may run on the loop
itself while the database is fast: the thread switch costs more than the call (docs/decisions/0028).
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    InterfaceError,
    InternalError,
    OperationalError,
    StatementError,
)

import joulie_migrations
from joulie_bus.errors import Unwritable, one_line
from joulie_bus.runtime import metrics
from joulie_bus.runtime.logging import get_logger
from joulie_projections.store.database import require_reachable

RETRY_S = 0.5
SLOW_S = 0.01  # after a call that took longer, the next one runs in the thread
LOG_EVERY = 20  # attempts: a full disk is logged every ten seconds
# Disk full, locked, deadlock, serialization, restart, connection lost, a transaction that was idle
# for too long: a retry may succeed.
TRANSIENT = (OperationalError, InterfaceError, InternalError)
ANSWERS = (DBAPIError,)  # all that a database answers instead of rows
# Classes of SQLSTATE: data exception, program limit exceeded (an index entry that is too long).
_PERMANENT = ("22", "54")
T = TypeVar("T")
log = get_logger("database")


class DatabaseExecutor:
    """Runs one call at a time, in its thread or inline."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "database")
        self._lock = Lock()
        self._is_quick = False  # the last call took less than SLOW_S

    async def once(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._in_turn, call, args
        )

    async def try_inline(self, call: Callable[..., T], *args: Any) -> T:
        """Runs on the event loop; if the database is slow or busy, `until_done` in the thread."""
        if self._is_quick and self._lock.acquire(blocking=False):
            try:
                return self._timed(call, args)
            except TRANSIENT:
                metrics.DATABASE_RETRIES.inc()
            finally:
                self._lock.release()
        return await self.until_done(call, *args)

    async def until_done(self, call: Callable[..., T], *args: Any) -> T:
        """Retries transient errors without a limit. The caller reads nothing further meanwhile."""
        refusals = 0
        while True:
            try:
                done = await self.once(call, *args)
            except TRANSIENT as error:
                metrics.DATABASE_RETRIES.inc()
                if not refusals % LOG_EVERY:
                    why = one_line(str(error.orig))
                    log.error("refused", what=call.__name__, why=why, times=refusals + 1)
                refusals += 1
                await asyncio.sleep(RETRY_S)
                continue
            if refusals:
                log.warning("accepted", what=call.__name__, after_refusals=refusals)
            return done

    def close(self) -> None:
        """Waits for the call in progress."""
        self._thread.shutdown()

    def _in_turn(self, call: Callable[..., T], args: tuple[Any, ...]) -> T:
        with self._lock:
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
    """Whether the database will refuse the same values at every attempt."""
    if isinstance(error, DBAPIError):
        state = getattr(error.orig, "sqlstate", None) or ""
        return isinstance(error, DataError) or state.startswith(_PERMANENT)
    return isinstance(error, StatementError | ValueError | TypeError | OverflowError)


def _first_line(error: Exception) -> str:
    """The message without the statement and its values, which may be megabytes."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    message = str(cause).strip() or repr(cause)
    return f"{type(cause).__name__}: {message.splitlines()[0][:300]}"


async def until_usable(engine: Engine) -> None:
    """Returns when the database answers and has the schema of this version.

    A server may start after its clients, or be failing over. A file that cannot be opened stays so.
    """

    def connect() -> None:
        joulie_migrations.require(engine)

    executor = DatabaseExecutor()
    try:
        if engine.dialect.name == "sqlite":
            require_reachable(engine)
        await executor.until_done(connect)
    finally:
        executor.close()
