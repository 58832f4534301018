"""Engines for SQLite: durable for the one writer, read-only for everybody else."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import StaticPool

BUSY_MS = 5_000  # a reader waits so long for a checkpoint of the log file to end
_PROTECTED = frozenset({"decision", "batch", "head"})
_REFUSED = frozenset({sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE})
# SQLite names the table second here, behind the database or the trigger.
_REFUSED_BY_SECOND = frozenset({sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_DROP_TRIGGER})


def writer(path: Path) -> Engine:
    """The projector's. What the triggers guard, its connection cannot even ask for."""
    return _engine(str(path), "BEGIN IMMEDIATE", _guarded)


def migrator(path: Path) -> Engine:
    return _engine(str(path), "BEGIN IMMEDIATE", _durable)


def reader(path: Path) -> Engine:
    """Cannot write, whatever it tries."""
    return _engine(f"file:{path}?mode=ro&uri=true", "BEGIN", lambda connection: None)


def _engine(place: str, begin: str, prepare: Callable[[sqlite3.Connection], None]) -> Engine:
    """One connection per engine, used by one thread at a time; transactions begin as told."""
    engine = create_engine(
        f"sqlite:///{place}", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )

    @event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # else the driver begins late, and not for reads at all
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        prepare(connection)

    @event.listens_for(engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _durable(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # committed means on the disk


def _guarded(connection: sqlite3.Connection) -> None:
    _durable(connection)
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    refused = (action in _REFUSED and first in _PROTECTED) or (
        action in _REFUSED_BY_SECOND and second in _PROTECTED
    )
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK
