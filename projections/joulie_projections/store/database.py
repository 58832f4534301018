"""Engines for SQLite and PostgreSQL: durable for the one writer, read-only for everybody else."""

import contextlib
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.pool import StaticPool

from joulie_bus.errors import DatabaseUnreachable
from joulie_bus.runtime.redaction import masked
from joulie_bus.runtime.secret_files import make_private, tighten
from joulie_migrations.cuts import TRIMMER
from joulie_migrations.guards import GROWING, READER, WRITER
from joulie_projections.store.statements import run_in_sqlite

Place: TypeAlias = Path | str  # a file of SQLite, or the URL of either database
BUSY_MS = 5_000  # a lock that somebody holds is waited for so long
# A writer that was paused inside a transaction must not hold its locks for ever.
IDLE_TRANSACTION_MS = 10_000
# 32 MB, and not 4: a commit that also moves the log into the file takes several times as long as
# the others, and one in a hundred of them is what readers would see as the 99th percentile.
WAL_PAGES = 8000
CONNECT_S = 5
SQLITE_SUFFIXES = ("-wal", "-shm")  # what SQLite writes next to the file
POSTGRES = "postgresql"
_GUARDED = frozenset({*GROWING, "cut"})
_TRIMMED = frozenset({*GROWING, "snapshot", "gone"})
_REFUSED = frozenset({sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE})
# SQLite names the table second here, behind the database, the trigger or the index.
_REFUSED_BY_SECOND = frozenset(
    {sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_DROP_TRIGGER, sqlite3.SQLITE_DROP_INDEX}
)
_REFUSED_PRAGMAS = frozenset({"writable_schema", "recursive_triggers", "journal_mode"})


def writer(place: Place) -> Engine:
    """The projector's. What the triggers guard, its connection cannot even ask for."""
    if (url := _url(place)) is not None:
        return _postgres(url, WRITER, "")
    return _sqlite(str(_file(place)), "BEGIN IMMEDIATE", _guarded, _file(place))


def trimmer(place: Place) -> Engine:
    """Deletes what lies in front of a cut, and records cuts; the triggers allow no more."""
    if (url := _url(place)) is not None:
        return _postgres(url, TRIMMER, "")
    return _sqlite(str(_file(place)), "BEGIN IMMEDIATE", _trimming, _file(place))


def migrator(place: Place) -> Engine:
    """The owner of the tables."""
    if (url := _url(place)) is not None:
        return _postgres(url, "", "")
    return _sqlite(str(_file(place)), "BEGIN IMMEDIATE", _durable, _file(place))


def reader(place: Place) -> Engine:
    """Cannot write, whatever it tries."""
    if (url := _url(place)) is not None:
        return _postgres(url, READER, "-c default_transaction_read_only=on")
    return _sqlite(f"file:{_file(place)}?mode=ro&uri=true", "BEGIN", _tolerant)


def database_url(text: str) -> str:
    """sqlite:///path, postgresql://user:password@host/name, or empty for a file in the directory"""
    if not text:
        return text
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise ValueError("not a URL") from error
    if url.get_backend_name() not in ("sqlite", POSTGRES) or not url.database:
        raise ValueError("neither a SQLite file nor a PostgreSQL database")
    return text


def without_password(place: Place) -> str:
    """For messages: without the password."""
    return str(place) if isinstance(place, Path) else masked(make_url(place).render_as_string())


def sqlite_file(place: Place) -> Path | None:
    """None where the data is on a server."""
    return _file(place) if _url(place) is None else None


def require_reachable(engine: Engine) -> None:
    """Says at once, and in one sentence, that there is nobody to talk to."""
    try:
        engine.connect().close()
    except OperationalError as error:
        where = masked(engine.url.render_as_string())
        raise DatabaseUnreachable(where, masked(str(error.orig))) from error


def _url(place: Place) -> URL | None:
    if isinstance(place, Path):
        return None
    url = make_url(place)
    if url.get_backend_name() == "sqlite":
        return None
    return url.set(drivername=f"{POSTGRES}+psycopg")


def _file(place: Place) -> Path:
    return place if isinstance(place, Path) else Path(make_url(place).database or "")


def _make_private(file: Path) -> None:
    """SQLite gives its log and its index the rights of the file; older ones may have others."""
    with contextlib.suppress(OSError):  # SQLite says it better
        make_private(file)
    tighten(*(file.with_name(f"{file.name}{suffix}") for suffix in SQLITE_SUFFIXES))


def _sqlite(
    place: str,
    begin: str,
    prepare: Callable[[sqlite3.Connection], None],
    file: Path | None = None,
) -> Engine:
    """One connection per engine, used by one thread at a time; transactions begin as told.

    `file` is given where it may be written: then it is its owner's alone.
    """
    engine = create_engine(
        f"sqlite:///{place}", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )

    @event.listens_for(engine, "do_connect")
    def connecting(*_: object) -> None:
        if file is not None:
            _make_private(file)

    @event.listens_for(engine, "connect")
    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # else the driver begins late, and not for reads at all
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        prepare(connection)

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        run_in_sqlite(connection, begin)

    return engine


def _durable(connection: sqlite3.Connection) -> None:
    # Counts only before the first table is made: pages that a trim empties are given back then.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # committed means on the disk
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")


def _tolerant(connection: sqlite3.Connection) -> None:
    """What was changed into no text at all stops nobody who reads; `joulie verify` tells."""
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")


def _guarded(connection: sqlite3.Connection) -> None:
    _durable(connection)
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    """Cuts are the trimmer's: the writer of the log cannot even record one."""
    refused = _is_refused(action, first, second) or (
        action == sqlite3.SQLITE_INSERT and first == "cut"
    )
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


def _trimming(connection: sqlite3.Connection) -> None:
    _durable(connection)
    connection.set_authorizer(_authorize_trimmer)


def _authorize_trimmer(action: int, first: str | None, second: str | None, *_: object) -> int:
    """It writes nothing but cuts. Which rows it may delete the triggers say."""
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


def _postgres(url: URL, role: str, options: str) -> Engine:
    """One snapshot per transaction, and no more rights than `role` has, whoever logs in."""
    engine = create_engine(
        url,
        isolation_level="REPEATABLE READ",
        connect_args={
            "connect_timeout": CONNECT_S,
            "keepalives_idle": CONNECT_S,
            "tcp_user_timeout": 2 * CONNECT_S * 1000,
            "application_name": role or "joulie_migrate",
            "options": f"-c synchronous_commit=on -c lock_timeout={BUSY_MS} "
            f"-c idle_in_transaction_session_timeout={IDLE_TRANSACTION_MS} {options}",
        },
    )

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:
        # Before the first migration there is no role, and no table to protect either.
        known = "SELECT 1 FROM pg_roles WHERE rolname = %s"
        if role and connection.execute(known, (role,)).fetchone():
            connection.execute(f"SET ROLE {role}")
        connection.commit()

    return engine
