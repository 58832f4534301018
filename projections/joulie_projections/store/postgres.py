"""Engines for PostgreSQL, and the URLs that name its servers.

A URL names one server or several, in each form that libpq accepts. Of several, the primary is used:
a standby has the past, and a reader that moves between the two would load everything at each move.
"""

from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url, text
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.pool import Pool, QueuePool

from joulie_bus.errors import DatabaseUrlRefused
from joulie_migrations.cuts import TRIMMER
from joulie_projections.store.standbys import Standbys

BACKEND = "postgresql"
BUSY_MS = 5_000  # how long a statement waits for a lock of another connection
# A writer that is paused inside a transaction must not hold its locks forever. A reader holds none
# that a writer waits for, and computes for minutes between two rows.
IDLE_TRANSACTION_MS, FOR_EVER = 10_000, 0
CONNECT_S = 5
# For one statement, or one portion of rows. Reports count all entries of a log within it. A trim
# and a migration have no limit: they rewrite tables.
ANSWER_S = 600.0
CONNECT_SEVERAL_S = 2  # per server of several, so that one that is gone costs little
_SCHEMES = (f"{BACKEND}://", "postgres://", f"{BACKEND}+psycopg://")
_READS_ONLY = "default_transaction_read_only"
OF_READERS = {_READS_ONLY: "on", "idle_in_transaction_session_timeout": str(FOR_EVER)}
_READ_ONLY = "25006"  # SQLSTATE of a write to a standby
_ATTRS = "target_session_attrs"
# Both are the primary; `read-write` would refuse a reader, whose transactions are read-only.
_PRIMARY = ("primary", "read-write", "any", None)
_WITHOUT_LIMIT = ("", TRIMMER)
_IN_URL = ("user", "password", "dbname")


def is_postgres(text: str) -> bool:
    return text.startswith(_SCHEMES)


def parsed(text: str) -> URL:
    """Raises DatabaseUrlRefused for a URL that libpq does not accept, or that names a standby."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        return _parsed_by_libpq(text)
    if text.startswith("postgres://") or set(",%") & set(url.host or ""):
        return _parsed_by_libpq(text)  # several servers, or the directory of a socket
    return _primary(url.set(drivername=f"{BACKEND}+psycopg"))


def _parsed_by_libpq(text: str) -> URL:
    # Imported here: a process that uses SQLite does without.
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    scheme, _, rest = text.partition("://")
    try:
        found = conninfo_to_dict(f"{scheme.partition('+')[0]}://{rest}")
    except ProgrammingError as error:
        raise DatabaseUrlRefused(str(error).strip().splitlines()[0]) from None
    url = URL.create(
        f"{BACKEND}+psycopg",
        username=_text(found.get("user")),
        password=_text(found.get("password")),
        database=_text(found.get("dbname")),
        query={name: str(value) for name, value in found.items() if name not in _IN_URL},
    )
    return _primary(url)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _primary(url: URL) -> URL:
    wanted = url.query.get(_ATTRS)
    if wanted not in _PRIMARY:
        raise DatabaseUrlRefused(
            f"{_ATTRS}={wanted} may choose a standby, which has the past; components of Joulie use "
            f"the primary. Leave {_ATTRS} out, or set it to primary"
        )
    if names_several(url):
        return url.update_query_dict({_ATTRS: "primary"})
    return url.difference_update_query([_ATTRS])


def names_several(url: URL) -> bool:
    hosts = url.query.get("host", "")
    return "," in hosts if isinstance(hosts, str) else len(hosts) > 1


def postgres_engine(
    url: URL, role: str, settings: dict[str, str], pool: type[Pool] = QueuePool
) -> Engine:
    """One snapshot per transaction, with the rights of `role`, whatever the user of the URL."""
    engine = create_engine(
        url,
        poolclass=pool,
        isolation_level="REPEATABLE READ",
        connect_args={
            "connect_timeout": CONNECT_SEVERAL_S if names_several(url) else CONNECT_S,
            "keepalives_idle": CONNECT_S,
            "tcp_user_timeout": 2 * CONNECT_S * 1000,
            "application_name": role or "joulie_migrate",
        },
    )
    _bound_answers(engine, None if role in _WITHOUT_LIMIT else ANSWER_S)
    _prepare_sessions(engine, role, _of_all_sessions() | settings)
    if settings.get(_READS_ONLY) != "on":
        event.listen(engine, "handle_error", _refused_by_standby)
    return engine


def _bound_answers(engine: Engine, answer_s: float | None) -> None:
    @event.listens_for(engine, "do_connect")
    def connect(_: object, __: object, args: Any, options: Any) -> Any:
        # Imported here, as psycopg is.
        from joulie_projections.store.bounded_connection import BoundedConnection

        connection = BoundedConnection.connect(*args, **options)
        connection.answer_s = answer_s
        return connection


def _of_all_sessions() -> dict[str, str]:
    return {
        "synchronous_commit": "on",
        "lock_timeout": str(BUSY_MS),
        "idle_in_transaction_session_timeout": str(IDLE_TRANSACTION_MS),
    }


def _prepare_sessions(engine: Engine, role: str, settings: dict[str, str]) -> None:
    """By statements after the connection: PgBouncer refuses options at the startup."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        # Before the first migration neither the role nor the tables exist.
        known = "SELECT pg_has_role(rolname, 'MEMBER') FROM pg_roles WHERE rolname = %s"
        found = connection.execute(known, (role,)).fetchone() if role else None
        # A command that reads in the pod of a writer has the writer's user, which stays itself.
        if found and (found[0] or settings.get(_READS_ONLY) != "on"):
            connection.execute(f"SET ROLE {role}")
        connection.commit()


def standbys_of(engine: Engine) -> Standbys | None:
    if engine.dialect.name != BACKEND:
        return None
    with engine.connect() as db:
        connected = db.scalar(text("SELECT count(*) FROM pg_stat_replication"))
        synchronous = db.scalar(text("SELECT current_setting('synchronous_standby_names')"))
    return Standbys(int(connected or 0), str(synchronous or ""))


_REPLAYED = text(
    "SELECT replay_lsn IS NULL AS is_hidden, extract(epoch FROM replay_lag)::float AS lag_s, "
    "pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) > :most AS is_behind "
    "FROM pg_stat_replication"
)
_AWAY = text(
    "SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active"
)
_NO_LAG_BYTES = 2**20  # a standby this near needs no time; the server shows none then


def standby_lag_s(engine: Engine) -> float | None:
    """How long the slowest standby has not replayed what was committed; 0 without standbys.

    None if it is not known: a standby with a slot is away, or the user may not see how far one is,
    for which it needs pg_read_all_stats.
    """
    if engine.dialect.name != BACKEND:
        return 0.0
    with engine.connect() as db:
        if db.scalar(_AWAY):
            return None
        slowest = 0.0
        for found in db.execute(_REPLAYED, {"most": _NO_LAG_BYTES}):
            if found.is_hidden or (found.lag_s is None and found.is_behind):
                return None
            slowest = max(slowest, found.lag_s or 0.0)
        return slowest


def _refused_by_standby(context: ExceptionContext) -> None:
    """A server that became a standby counts as one that is gone: another one has its place."""
    error = context.original_exception
    if getattr(error, "sqlstate", "") == _READ_ONLY:
        context.is_disconnect = True
        raise OperationalError(context.statement, None, error) from error
