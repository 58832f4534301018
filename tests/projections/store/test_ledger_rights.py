"""The ledger writes its own tables only, and no other component writes these."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, insert, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

import joulie_migrations
from joulie_bus.errors import Unreadable
from joulie_projections.history.history import History
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.energy_lag import seconds_behind
from joulie_projections.store.energy_table import EnergyTable
from joulie_projections.store.tables import energy_state, ledger_metadata, metadata
from projections_kit import Postgres

OF_LOG = sorted(metadata.tables)
OF_LEDGER = sorted(ledger_metadata.tables)
ROW = {"name": "a", "position": 7, "digest": b"", "body": b""}


@pytest.fixture
def ledger(place: Place) -> Generator[Engine, None, None]:
    engine = database.ledger(place)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("table", OF_LOG)
def test_the_ledger_changes_no_table_of_the_log(ledger: Engine, table: str) -> None:
    for statement in (
        f"INSERT INTO {table} DEFAULT VALUES",
        f"DELETE FROM {table}",
        f"DROP TABLE {table}",
    ):
        with pytest.raises(DBAPIError, match=r"readonly|permission denied|must be owner"):
            run(ledger, statement)


def write(place: Place) -> None:
    engine = database.ledger(place)
    with engine.begin() as db:
        db.execute(insert(energy_state).values(ROW))
    engine.dispose()


def run(engine: Engine, statement: str) -> None:
    with engine.begin() as db:
        db.execute(text(statement))


@pytest.mark.parametrize("table", OF_LEDGER)
def test_the_projector_and_the_trimmer_change_no_table_of_the_ledger(
    place: Place, table: str
) -> None:
    for engine in (database.writer(place), database.trimmer(place)):
        with pytest.raises(DBAPIError, match=r"no such table|permission denied"):
            run(engine, f"DELETE FROM {table}")
        engine.dispose()


def test_a_login_of_the_ledger_on_postgres_cannot_take_the_role_of_the_projector(
    postgres: Postgres,
) -> None:
    url = postgres.migrated()
    name = make_url(url).database or ""
    user = f"ledger_{name}"
    postgres.execute(name, f"CREATE ROLE {user} LOGIN IN ROLE joulie_ledger, joulie_reader")

    with psycopg.connect(postgres.url(name, user), autocommit=True) as login:
        for statement in (
            "SET ROLE joulie_writer",
            "SET ROLE joulie_trimmer",
            "INSERT INTO decision SELECT * FROM decision",
            "UPDATE checkpoint SET position = 1",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                login.execute(statement.encode())
    own = postgres.url(name, user)
    write(own)
    with History.of(own) as history:
        assert history.tip() == 0
    assert seconds_behind(own) == 0


def test_a_ledger_that_has_not_begun_is_empty_and_is_seen_when_it_begins(place: Place) -> None:
    reader = database.ledger_reader(place)
    with reader.connect() as db:
        before = db.execute(select(energy_state.c.position)).all()
    write(place)

    with reader.connect() as db:
        after = db.execute(select(energy_state.c.position)).all()
    reader.dispose()

    assert (before, after) == ([], [(7,)])


def test_a_url_names_the_directory_of_the_ledger(database_file: Path, tmp_path: Path) -> None:
    own = tmp_path / "of the ledger"
    own.mkdir()
    place = f"sqlite:///{database_file}?ledger={own}"
    write(place)

    assert database.sqlite_file(place) == database_file
    assert [file.name for file in own.iterdir()] == ["joulie-ledger.db"]
    assert not database.ledger_file(database_file).exists()
    with EnergyTable.readable(place) as table:
        assert table.load() is None


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + bytes(4096)])
def test_a_damaged_ledger_fails_reports_of_energy_and_no_other_reader(
    database_file: Path, content: bytes
) -> None:
    database.ledger_file(database_file).write_bytes(content)

    with History.of(database_file) as history:
        assert history.tip() == 0
    assert seconds_behind(database_file) is None
    with (
        pytest.raises(Unreadable, match="joulie"),
        EnergyTable.readable(database_file) as table,
    ):
        table.load()


def test_a_directory_of_the_ledger_that_is_not_there_is_no_empty_ledger(
    database_file: Path, tmp_path: Path
) -> None:
    assert seconds_behind(f"sqlite:///{database_file}?ledger={tmp_path / 'gone'}") is None


# --- another user, as in the chart --------------------------------------------------------------

PROJECTOR, LEDGER_USER, GROUP = 65532, 65533, 65532
AS_THE_LEDGER = """
import os, sqlite3, sys
from pathlib import Path
from sqlalchemy import text
from joulie_projections.store import database
os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[2]))
log = Path(sys.argv[1])
engine = database.ledger(sys.argv[4])
with engine.begin() as db:
    rows = db.execute(text("SELECT count(*) FROM log.batch")).scalar()
print(rows, oct((log.parents[1] / "ledger" / "joulie-ledger.db").stat().st_mode & 0o777))
for attempt in (lambda: open(log, "r+b"), lambda: open(log.with_name("head.key"), "rb")):
    try:
        attempt()
    except PermissionError:
        print("refused")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of other users")
def test_the_ledger_of_another_user_reads_the_log_and_writes_a_file_of_its_own(
    world_of_users: Path,
) -> None:
    os.chown(world_of_users / "ledger", LEDGER_USER, GROUP)
    file = world_of_users / "log" / "joulie.db"
    place = f"sqlite:///{file}?ledger={world_of_users / 'ledger'}"
    (world_of_users / "log" / "head.key").write_text("secret")
    (world_of_users / "log" / "head.key").chmod(0o600)
    engine = database.migrator(place)
    joulie_migrations.upgrade(engine)
    with engine.connect() as held:  # as the projector does: the log beside the file stays
        held.execute(text("SELECT 1"))
        for path in file.parent.iterdir():
            os.chown(path, PROJECTOR, GROUP)
        users = (str(LEDGER_USER), str(GROUP))
        words = [sys.executable, "-c", AS_THE_LEDGER, str(file), *users, place]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    engine.dispose()

    assert done.stdout.splitlines() == ["0 0o640", "refused", "refused"], done.stderr
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.fixture
def world_of_users() -> Generator[Path, None, None]:
    """Two directories that every user may enter."""
    with tempfile.TemporaryDirectory() as path:
        Path(path).chmod(0o755)
        for name in ("log", "ledger"):
            (Path(path) / name).mkdir(mode=0o755)
        yield Path(path)
