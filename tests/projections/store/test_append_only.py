"""The logs are append-only in both databases: each layer refuses changes by itself."""

import contextlib
import re
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError, DBAPIError

from bus_kit import noon, one_of_each, records
from joulie_bus.events import FilterDecided
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_migrations.guards import GROWING
from joulie_projections.chain.entry import EntryFields, header_of
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.log import DecisionLog
from joulie_projections.fold.sequence import FoldCursor, sequence
from joulie_projections.state.rows import empty_digests
from joulie_projections.state.state import ClusterState
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
from projections_kit import Postgres
from signed_heads import BESIDE, begun

# The stored columns of an entry in each database: SQLite generates the others.
SQLITE = "pos, body, prev, hash"
POSTGRES = "pos, body, prev, hash, event_id, kind, pod_uid, pod, view_position, decided_at"


def sql_for(place: Place, statement: str) -> str:
    """The SQL for the database: its stored columns, and the body and fields of an entry for each
    `<body id>` and `<fields id>`."""
    is_sqlite = database.sqlite_file(place) is not None

    def body(found: re.Match[str]) -> str:
        header = header_of(EntryFields(found[1], "k", "u", "p", 0, 0))
        return f"x'{header.hex()}'" if is_sqlite else "substr(body, 2)"

    def fields(found: re.Match[str]) -> str:
        return "" if is_sqlite else f", '{found[1]}', kind, pod_uid, pod, 0, 0"

    statement = re.sub("<fields (.*?)>", fields, re.sub("<body (.*?)>", body, statement))
    return statement.format(kept=SQLITE if is_sqlite else POSTGRES)


def fill(writer: Engine, key: Path) -> None:
    """Writes two decisions, a head, a batch and a message in quarantine."""
    store, signer = Store(writer), Signer.of(key)
    store.acquire("me", 10, "i", lambda _: False)
    log = begun(DecisionLog(writer), signer.public)
    answers = [event for event in one_of_each() if isinstance(event, FilterDecided)]
    log.append(1, records(*answers, *answers, name="extender"), "then")
    log.sign(1, signer, BESIDE)
    start = FoldCursor(0, {}, empty_digests(), b"")
    garbage = [Record(Stream.TEL, 1, noon(), b"garbage")]
    store.commit(1, sequence(ClusterState(), start, garbage, dict.fromkeys(Stream, ""), 1).commit)


@pytest.fixture
def filled(writer: Engine, tmp_path: Path) -> Engine:
    fill(writer, tmp_path / "key")
    return writer


def copy_row(table: str, verb: str = "INSERT", suffix: str = "") -> str:
    into, kept = (f"{table} ({{kept}})", "{kept}") if table == "decision" else (table, "*")
    return f"{verb} INTO {into} SELECT {kept} FROM {table} WHERE true LIMIT 1{suffix}"


CHANGES = [
    *(f"UPDATE {table} SET {key} = {key}" for table, key in GROWING.items()),
    "UPDATE decision SET body = prev WHERE pos = 1",
    "UPDATE batch SET facts_hash = prev",
    "UPDATE head SET note = hash",
    *(f"DELETE FROM {table}" for table in GROWING),
    *(copy_row(table) for table in GROWING),
    *(
        copy_row(table, suffix=f" ON CONFLICT ({key}) DO UPDATE SET {key} = excluded.{key}")
        for table, key in GROWING.items()
    ),
]


def contents_of(place: Place) -> list[list[Any]]:
    """The rows of all append-only tables."""
    engine = database.migrator(place)
    with engine.connect() as db:
        found = [list(db.execute(text(f"SELECT * FROM {table}"))) for table in GROWING]
    engine.dispose()
    return [[tuple(row) for row in rows] for rows in found]


@pytest.mark.parametrize("statement", CHANGES)
def test_the_writer_cannot_change_existing_rows(
    filled: Engine, place: Place, statement: str
) -> None:
    before = contents_of(place)

    with pytest.raises(DatabaseError), filled.begin() as db:
        db.exec_driver_sql(sql_for(place, statement))

    assert contents_of(place) == before


def insert_entry(pos: int, prev: str, event_id: str = "new") -> str:
    """SQL that inserts an entry; `prev` is SQL."""
    return (
        f"INSERT INTO decision ({{kept}}) SELECT {pos}, <body {event_id}>, ({prev}), hash"
        f"<fields {event_id}> FROM decision WHERE pos = 1"
    )


MISPLACED = [
    pytest.param(insert_entry(2, "SELECT hash FROM decision WHERE pos = 1"), id="taken"),
    pytest.param(insert_entry(9, "SELECT hash FROM decision WHERE pos = 2"), id="a gap"),
    pytest.param(insert_entry(3, "prev"), id="another chain"),
    pytest.param(insert_entry(3, "SELECT hash FROM decision WHERE pos = 1"), id="a fork"),
    pytest.param(insert_entry(0, "prev"), id="before the first"),
    pytest.param(
        insert_entry(3, "SELECT hash FROM decision WHERE pos = 2", "extender:b1:1"),
        id="a repeat",
    ),
]


@pytest.mark.parametrize("statement", MISPLACED)
def test_an_entry_can_only_be_appended_at_the_end(
    filled: Engine, place: Place, statement: str
) -> None:
    before = contents_of(place)

    with pytest.raises(DatabaseError), filled.begin() as db:
        db.exec_driver_sql(sql_for(place, statement))

    assert contents_of(place) == before


def test_the_writers_other_tables_stay_writable(filled: Engine) -> None:
    with filled.begin() as db:
        db.exec_driver_sql("UPDATE checkpoint SET head = inputs")
        db.exec_driver_sql("DELETE FROM node_twin")


# --- SQLite: a connection without the authorizer ----------------------------------------------


@pytest.fixture
def plain_connection(
    database_file: Path, tmp_path: Path
) -> Generator[sqlite3.Connection, None, None]:
    engine = database.writer(database_file)
    fill(engine, tmp_path / "key")
    engine.dispose()
    connection = sqlite3.connect(database_file, isolation_level=None)
    yield connection
    connection.close()


REPLACEMENTS = [
    *(copy_row(table, verb) for table in GROWING for verb in ("REPLACE", "INSERT OR REPLACE")),
    insert_entry(3, "SELECT hash FROM decision WHERE pos = 2", "extender:b1:1").replace(
        "INSERT", "REPLACE"
    ),
    insert_entry(1, "SELECT prev FROM decision WHERE pos = 1")
    .replace("INSERT", "REPLACE")
    .replace("{kept}", SQLITE.replace("pos", "rowid")),
    *(f"UPDATE {table} SET rowid = rowid" for table in GROWING),
]


@pytest.mark.slow
@pytest.mark.parametrize("statement", [*CHANGES, *MISPLACED, *REPLACEMENTS])
def test_the_triggers_refuse_a_plain_connection_to_the_file(
    plain_connection: sqlite3.Connection, database_file: Path, statement: str
) -> None:
    before = contents_of(database_file)

    with pytest.raises(sqlite3.DatabaseError, match=r"only grows|no such place"):
        plain_connection.execute(sql_for(database_file, statement))

    assert contents_of(database_file) == before


SCHEMA_CHANGES = [
    *REPLACEMENTS,
    *(f"DROP TABLE {table}" for table in GROWING),
    *(f"ALTER TABLE {table} RENAME TO elsewhere" for table in GROWING),
    "ALTER TABLE decision DROP COLUMN kind",
    *(f"DROP TRIGGER {table}_no_delete" for table in GROWING),
    "DROP TRIGGER decision_chained",
    "DROP INDEX decision_by_pod",
    "PRAGMA writable_schema = on",
    "PRAGMA recursive_triggers = on",
    "PRAGMA journal_mode = off",
]


@pytest.mark.parametrize("statement", SCHEMA_CHANGES)
def test_the_writer_of_a_file_cannot_remove_its_triggers(
    plain_connection: sqlite3.Connection, database_file: Path, statement: str
) -> None:
    schema = "SELECT name, sql FROM sqlite_master ORDER BY name"
    before = plain_connection.execute(schema).fetchall(), contents_of(database_file)
    engine = database.writer(database_file)

    with pytest.raises(DatabaseError), engine.begin() as db:
        db.exec_driver_sql(sql_for(database_file, statement))
    engine.dispose()

    assert (plain_connection.execute(schema).fetchall(), contents_of(database_file)) == before


def test_the_first_entry_is_number_one(
    plain_connection: sqlite3.Connection, tmp_path: Path
) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "empty.db")) as other:
        for (sql,) in plain_connection.execute(
            "SELECT sql FROM sqlite_master WHERE tbl_name = 'decision'"
        ):
            other.execute(sql or "SELECT 1")

        with pytest.raises(sqlite3.DatabaseError, match="no such place"):
            other.execute(
                "INSERT INTO decision (pos, body, prev, hash) VALUES (2, x'00', x'00', x'77')"
            )


# --- PostgreSQL: a plain connection of the writer's role, and the owner's ---------------------


@pytest.fixture
def postgres_url(postgres: Postgres, tmp_path: Path) -> str:
    url = postgres.migrated()
    engine = database.writer(url)
    fill(engine, tmp_path / "key")
    engine.dispose()
    return url


@pytest.fixture
def writer_login(
    postgres_url: str, postgres: Postgres
) -> Generator[psycopg.Connection, None, None]:
    """A login with the role of the writer."""
    name = make_url(postgres_url).database or ""
    user = f"clerk_{name}"
    postgres.execute(name, f"CREATE ROLE {user} LOGIN IN ROLE joulie_writer")
    with psycopg.connect(postgres.url(name, user), autocommit=True) as connection:
        yield connection


OWNER_STATEMENTS = [
    *(f"TRUNCATE {table}" for table in GROWING),
    *(f"DROP TABLE {table}" for table in GROWING),
    *(f"ALTER TABLE {table} DISABLE TRIGGER ALL" for table in GROWING),
    "ALTER TABLE decision DROP CONSTRAINT decision_hash",
    "DROP TRIGGER decision_chained ON decision",
    "DROP FUNCTION joulie_only_grows() CASCADE",
    "SET session_replication_role = replica",
    "CREATE TABLE mine (x int)",
    "DELETE FROM checkpoint",
    "UPDATE schema_floor SET oldest = '9999'",
]


@pytest.mark.parametrize("statement", [*CHANGES, *OWNER_STATEMENTS])
def test_the_role_of_the_writer_has_no_right_to_change_rows(
    writer_login: psycopg.Connection, postgres_url: str, statement: str
) -> None:
    before = contents_of(postgres_url)

    refused = r"permission denied|must be owner|duplicate key|no such place"
    with pytest.raises(psycopg.Error, match=refused):
        writer_login.execute(sql_for(postgres_url, statement).encode())

    assert contents_of(postgres_url) == before


@pytest.mark.parametrize(
    "statement",
    [*(f"TRUNCATE {table}" for table in GROWING), *(s for s in CHANGES if "CONFLICT" not in s)],
)
def test_the_owner_is_stopped_by_the_triggers(
    postgres_url: str, postgres: Postgres, statement: str
) -> None:
    before = contents_of(postgres_url)

    with pytest.raises(psycopg.Error, match=r"only grows|duplicate key|no such place"):
        postgres.execute(make_url(postgres_url).database or "", sql_for(postgres_url, statement))

    assert contents_of(postgres_url) == before


def test_an_entry_with_a_wrong_hash_is_refused(
    writer_login: psycopg.Connection, postgres_url: str
) -> None:
    statement = insert_entry(3, "SELECT hash FROM decision WHERE pos = 2")

    with pytest.raises(psycopg.errors.CheckViolation, match="decision_hash"):
        writer_login.execute(sql_for(postgres_url, statement).encode())


def test_a_reader_of_postgres_can_only_read(postgres_url: str, postgres: Postgres) -> None:
    name = make_url(postgres_url).database or ""
    user = f"reader_{name}"
    postgres.execute(name, f"CREATE ROLE {user} LOGIN IN ROLE joulie_reader")

    with psycopg.connect(postgres.url(name, user), autocommit=True) as connection:
        found = connection.execute("SELECT count(*) FROM decision").fetchone()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO gone VALUES (1, 'node', 'a', 1)")

    assert found == (2,)


def test_a_command_that_reads_as_the_user_of_the_writer_reads_and_writes_nothing(
    postgres_url: str, postgres: Postgres
) -> None:
    """`joulie verify` in the pod of the projector, whose user has the role of the writer alone."""
    name = make_url(postgres_url).database or ""
    user = f"verifier_{name}"
    postgres.execute(name, f"CREATE ROLE {user} LOGIN IN ROLE joulie_writer")
    engine = database.reader(postgres.url(name, user))

    with engine.connect() as connection:
        found = connection.execute(text("SELECT count(*) FROM decision")).scalar()
        with pytest.raises(DBAPIError, match="read-only transaction"):
            connection.execute(text("INSERT INTO gone VALUES (1, 'node', 'a', 1)"))
    engine.dispose()

    assert found == 2
