"""Engines for SQLite and PostgreSQL: durable for the writer, read-only for all readers."""

import contextlib
import sqlite3
import stat
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.pool import NullPool, Pool, QueuePool

from joulie_bus.core.redaction import masked
from joulie_bus.errors import DatabaseUnreachable, DatabaseUrlRefused
from joulie_bus.runtime.secret_files import OTHERS, make_private, tighten
from joulie_migrations import foreign_rows, ledger_tables
from joulie_migrations.cuts import TRIMMER
from joulie_migrations.guards import GROWING, READER, WRITER
from joulie_migrations.ledger_tables import LEDGER
from joulie_projections.store.postgres import (
    BACKEND,
    BUSY_MS,
    OF_READERS,
    is_postgres,
    parsed,
    postgres_engine,
)
from joulie_projections.store.statements import run_in_sqlite

# A file of SQLite, or the URL of either database. The file of the ledger is beside that of the log,
# or in the directory that the URL names: `sqlite:////srv/log/joulie.db?ledger=/srv/ledger`.
Place: TypeAlias = Path | str
LEDGER_DIRECTORY = "ledger"  # the parameter of the URL
# 32 MB instead of the default 4: a commit that also checkpoints the WAL takes several times as
# long as the others. At 4 MB one commit in a hundred does, and sets the 99th percentile of readers.
WAL_PAGES = 8000
SQLITE_SUFFIXES = ("-wal", "-shm")  # of the files that SQLite writes beside the database file
_GUARDED = frozenset({*GROWING, foreign_rows.TABLE, "tree_tile", "cut"})
_TRIMMED = frozenset({*GROWING, "snapshot", "gone"})
_MOVED = frozenset(foreign_rows.IS_FOREIGN)  # the writer may delete what the triggers let go
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
    return _writable(place, _guarded)


def trimmer(place: Place) -> Engine:
    """For the trimmer: deletes rows before a cut and records cuts; the triggers allow no more."""
    if (url := _url(place)) is not None:
        return postgres_engine(url, TRIMMER, {})
    return _writable(place, _trimming)


def ledger(place: Place) -> Engine:
    """For the ledger: writes its own tables, and reads of the log how old it is.

    With SQLite they are in a file of their own, because a commit over several attached files is not
    atomic in a crash; the file of the log is opened for reading only.
    """
    if (url := _url(place)) is not None:
        return postgres_engine(url, LEDGER, {})
    log, own = _file(place), ledger_file(place)

    def prepare(connection: sqlite3.Connection) -> None:
        _durable(connection)
        for statement in ledger_tables.on_sqlite():
            connection.execute(statement)
        connection.execute("ATTACH ? AS log", (_uri(log, "ro"),))

    return _sqlite(
        f"{_uri(own, 'rwc')}&uri=true", "BEGIN IMMEDIATE", prepare, own, _readers_of(place)
    )


def ledger_owner(place: Place) -> Engine:
    """For a copy of the ledger, by the owner of the tables."""
    return ledger(place) if sqlite_file(place) is not None else migrator(place)


def migrator(place: Place) -> Engine:
    """For migrations: the owner of the tables."""
    if (url := _url(place)) is not None:
        return postgres_engine(url, "", {})
    return _writable(place, _durable)


def reader(place: Place, pool: type[Pool] = QueuePool) -> Engine:
    """A read-only engine."""
    if (url := _url(place)) is not None:
        return postgres_engine(url, READER, OF_READERS, pool)
    return _sqlite(f"file:{_file(place)}?mode=ro&uri=true", "BEGIN", _tolerant, pool=pool)


def read_committed(engine: Engine) -> Engine:
    """For transactions whose statements name what they rely on: a row that another transaction
    changed meanwhile is compared again, instead of ending this one. SQLite has one writer at a
    time."""
    if engine.dialect.name != BACKEND:
        return engine
    return engine.execution_options(isolation_level="READ COMMITTED")


def ledger_reader(place: Place) -> Engine:
    """A read-only engine of the log and the ledger. A ledger that has not begun is empty."""
    if is_postgres(str(place)):
        return reader(place)
    own = ledger_file(place)

    def prepare(connection: sqlite3.Connection) -> None:
        _tolerant(connection)
        if own.exists() or not own.parent.exists():
            connection.execute("ATTACH ? AS ledger", (_uri(own, "ro"),))
            return
        connection.execute("ATTACH ':memory:' AS ledger")
        for statement in ledger_tables.on_sqlite("ledger"):
            connection.execute(statement)

    # Without a pool: the ledger may begin while this process runs.
    return _sqlite(f"{_uri(_file(place), 'ro')}&uri=true", "BEGIN", prepare, pool=NullPool)


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


def ledger_file(place: Place) -> Path:
    """The file of the ledger, for a place of SQLite."""
    log = _file(place)
    given = "" if isinstance(place, Path) else make_url(place).query.get(LEDGER_DIRECTORY, "")
    directory = Path(given) if isinstance(given, str) and given else log.parent
    return directory / f"{log.stem}-ledger{log.suffix}"


def require_reachable(engine: Engine) -> None:
    """Raises DatabaseUnreachable if no connection can be opened."""
    connection_of(engine).close()


def connection_of(engine: Engine) -> Connection:
    """Raises DatabaseUnreachable if no connection can be opened."""
    try:
        return engine.connect()
    except OperationalError as error:
        where = masked(engine.url.render_as_string())
        raise DatabaseUnreachable(where, masked(str(error.orig))) from error


def _url(place: Place) -> URL | None:
    return None if isinstance(place, Path) or not is_postgres(place) else parsed(place)


def _file(place: Place) -> Path:
    return place if isinstance(place, Path) else Path(make_url(place).database or "")


def _uri(file: Path, mode: str) -> str:
    return f"file:{quote(str(file))}?mode={mode}"


def _make_private(file: Path, readers: int) -> None:
    """Restricts the file and the files beside it to their owner, and to `readers`.

    SQLite creates its log and index with the mode of the file, but existing ones keep theirs.
    """
    others = OTHERS & ~readers
    with contextlib.suppress(OSError):  # the error of SQLite that follows is clearer
        make_private(file, others)
    tighten(*(file.with_name(f"{file.name}{suffix}") for suffix in SQLITE_SUFFIXES), others=others)


def _readers_of(place: Place) -> int:
    """Where the ledger has a directory of its own, it may be another user of the same group."""
    return stat.S_IRGRP if ledger_file(place).parent != _file(place).parent else 0


def _writable(place: Place, prepare: Callable[[sqlite3.Connection], None]) -> Engine:
    """Of the file of the log."""
    file = _file(place)
    return _sqlite(str(file), "BEGIN IMMEDIATE", prepare, file, _readers_of(place))


def _sqlite(
    place: str,
    begin: str,
    prepare: Callable[[sqlite3.Connection], None],
    file: Path | None = None,
    readers: int = 0,
    pool: type[Pool] = QueuePool,
) -> Engine:
    """An engine whose transactions start with `begin`. Calls in several threads at once have a
    connection each: on a shared one they would end each other's transactions.

    `file` is given for writable engines: its mode allows the owner, and `readers`.
    """
    engine = create_engine(
        f"sqlite:///{place}", poolclass=pool, connect_args={"check_same_thread": False}
    )

    @event.listens_for(engine, "do_connect")
    def connecting(*_: object) -> None:
        if file is not None:
            _make_private(file, readers)

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
    is_tile = action == sqlite3.SQLITE_UPDATE and first == "tree_tile"  # the trigger decides
    refused = (_is_refused(action, first, second) and not is_tile) or (
        action == sqlite3.SQLITE_INSERT and first == "cut"
    )
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


@contextlib.contextmanager
def moving(db: Connection) -> Generator[None, None, None]:
    """Lets the writer of a SQLite file delete what the triggers let go: rows that it moved."""
    connection = db.connection.driver_connection
    assert isinstance(connection, sqlite3.Connection)
    connection.set_authorizer(_authorize_moving)
    try:
        yield
    finally:
        connection.set_authorizer(_authorize)


def _authorize_moving(action: int, first: str | None, second: str | None, *rest: object) -> int:
    is_moved = action == sqlite3.SQLITE_DELETE and first in _MOVED
    return sqlite3.SQLITE_OK if is_moved else _authorize(action, first, second, *rest)


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
