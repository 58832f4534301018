"""Engines for SQLite and PostgreSQL: durable for the writer, read-only for all readers."""

import contextlib
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.pool import QueuePool

from joulie_bus.core.redaction import masked
from joulie_bus.errors import DatabaseUnreachable, DatabaseUrlRefused
from joulie_bus.runtime.secret_files import make_private, tighten
from joulie_migrations import tree_tables
from joulie_migrations.cuts import TRIMMER
from joulie_migrations.guards import GROWING, READER, WRITER
from joulie_projections.store.postgres import (
    BACKEND,
    BUSY_MS,
    OF_READERS,
    is_postgres,
    parsed,
    postgres_engine,
)
from joulie_projections.store.statements import run_in_sqlite

Place: TypeAlias = Path | str  # a file of SQLite, or the URL of either database
# 32 MB instead of the default 4: a commit that also checkpoints the WAL takes several times as
# long as the others. At 4 MB one commit in a hundred does, and sets the 99th percentile of readers.
WAL_PAGES = 8000
SQLITE_SUFFIXES = ("-wal", "-shm")  # of the files that SQLite writes beside the database file
_GUARDED = frozenset({*GROWING, *tree_tables.KEYS, "cut"})
_TRIMMED = frozenset({*GROWING, "tree_head", "snapshot", "gone"})
_REFUSED = frozenset({sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE})
# For these actions SQLite passes the table as the second argument, after the database, the trigger
# or the index.
_REFUSED_BY_SECOND = frozenset(
    {sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_DROP_TRIGGER, sqlite3.SQLITE_DROP_INDEX}
)
_REFUSED_PRAGMAS = frozenset({"writable_schema", "recursive_triggers", "journal_mode"})


def writer(place: Place) -> Engine:
    """For the projector. Its connection refuses statements that the triggers guard against."""
    if (url := _url(place)) is not None:
        return postgres_engine(url, WRITER, {})
    return _sqlite(str(_file(place)), "BEGIN IMMEDIATE", _guarded, _file(place))


def trimmer(place: Place) -> Engine:
    """For the trimmer: deletes rows before a cut and records cuts; the triggers allow no more."""
    if (url := _url(place)) is not None:
        return postgres_engine(url, TRIMMER, {})
    return _sqlite(str(_file(place)), "BEGIN IMMEDIATE", _trimming, _file(place))


def migrator(place: Place) -> Engine:
    """For migrations: the owner of the tables."""
    if (url := _url(place)) is not None:
        return postgres_engine(url, "", {})
    return _sqlite(str(_file(place)), "BEGIN IMMEDIATE", _durable, _file(place))


def reader(place: Place) -> Engine:
    """A read-only engine."""
    if (url := _url(place)) is not None:
        return postgres_engine(url, READER, OF_READERS)
    return _sqlite(f"file:{_file(place)}?mode=ro&uri=true", "BEGIN", _tolerant)


def checked_url(text: str) -> str:
    """The same URL; raises ValueError with the reason if it names no database of ours."""
    try:
        url = parsed(text) if is_postgres(text) else make_url(text)
    except DatabaseUrlRefused as error:
        raise ValueError(error.why) from error
    except ArgumentError as error:
        raise ValueError("not a URL") from error
    if url.get_backend_name() not in ("sqlite", BACKEND) or not url.database:
        raise ValueError("neither a SQLite file nor a PostgreSQL database")
    return text


def without_password(place: Place) -> str:
    """The location for messages, with the password masked."""
    if isinstance(place, Path):
        return str(place)
    url = parsed(place) if is_postgres(place) else make_url(place)
    return masked(url.render_as_string())


def sqlite_file(place: Place) -> Path | None:
    """The path of the SQLite file; None for PostgreSQL."""
    return _file(place) if _url(place) is None else None


def require_reachable(engine: Engine) -> None:
    """Raises DatabaseUnreachable if no connection can be opened."""
    try:
        engine.connect().close()
    except OperationalError as error:
        where = masked(engine.url.render_as_string())
        raise DatabaseUnreachable(where, masked(str(error.orig))) from error


def _url(place: Place) -> URL | None:
    return None if isinstance(place, Path) or not is_postgres(place) else parsed(place)


def _file(place: Place) -> Path:
    return place if isinstance(place, Path) else Path(make_url(place).database or "")


def _make_private(file: Path) -> None:
    """Restricts the file and the files beside it to their owner.

    SQLite creates its log and index with the mode of the file, but existing ones keep theirs.
    """
    with contextlib.suppress(OSError):  # the error of SQLite that follows is clearer
        make_private(file)
    tighten(*(file.with_name(f"{file.name}{suffix}") for suffix in SQLITE_SUFFIXES))


def _sqlite(
    place: str,
    begin: str,
    prepare: Callable[[sqlite3.Connection], None],
    file: Path | None = None,
) -> Engine:
    """An engine whose transactions start with `begin`. Calls in several threads at once have a
    connection each: on a shared one they would end each other's transactions.

    `file` is given for writable engines: its mode is set to owner only.
    """
    engine = create_engine(
        f"sqlite:///{place}", poolclass=QueuePool, connect_args={"check_same_thread": False}
    )

    @event.listens_for(engine, "do_connect")
    def connecting(*_: object) -> None:
        if file is not None:
            _make_private(file)

    @event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, _: object) -> None:
        # Otherwise the driver begins late, and does not begin at all for reads.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        prepare(connection)

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        run_in_sqlite(connection, begin)

    return engine


def _durable(connection: sqlite3.Connection) -> None:
    # Takes effect only before the first table is created; lets a trim release empty pages.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a commit is on the disk
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")


def _tolerant(connection: sqlite3.Connection) -> None:
    """Invalid UTF-8 does not fail a reader; `joulie verify` reports it."""
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")


def _guarded(connection: sqlite3.Connection) -> None:
    _durable(connection)
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    """Only the trimmer records cuts: the writer of the log may not insert one."""
    refused = _is_refused(action, first, second) or (
        action == sqlite3.SQLITE_INSERT and first == "cut"
    )
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


def _trimming(connection: sqlite3.Connection) -> None:
    _durable(connection)
    connection.set_authorizer(_authorize_trimmer)


def _authorize_trimmer(action: int, first: str | None, second: str | None, *_: object) -> int:
    """The trimmer inserts cuts only. The triggers decide which rows it may delete."""
    refused = (
        (action == sqlite3.SQLITE_INSERT and first != "cut")
        or action == sqlite3.SQLITE_UPDATE
        or (action == sqlite3.SQLITE_DELETE and first not in _TRIMMED)
        or (action != sqlite3.SQLITE_DELETE and _is_refused(action, first, second))
    )
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


def _is_refused(action: int, first: str | None, second: str | None) -> bool:
    return (
        (action in _REFUSED and first in _GUARDED)
        or (action in _REFUSED_BY_SECOND and second in _GUARDED)
        or (action == sqlite3.SQLITE_PRAGMA and first in _REFUSED_PRAGMAS)
    )
