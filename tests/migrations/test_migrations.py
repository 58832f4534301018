"""The migrations give the schema of the code, and old and new versions work side by side."""

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, MetaData, inspect, text

import joulie_migrations
from bus_kit import node_seen, noon, power, records
from joulie_bus.errors import MigrationDenied, SchemaMismatch
from joulie_migrations import RELEASED, Steps
from joulie_projections.fold.sequence import FoldCursor, sequence
from joulie_projections.state.rows import empty_digests
from joulie_projections.state.state import ClusterState
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.store import Store
from joulie_projections.store.tables import (
    ledger_metadata,
    metadata,
)
from projections_kit import Postgres

HERE = Path(joulie_migrations.__file__).parent
STEP = """
import sqlalchemy as sa
from alembic import op

revision = "{number}"
down_revision = "{before}"
phase = "{phase}"


def upgrade() -> None:
    op.execute(sa.text("{sql}"))
"""
# The release after this one: it adds a column, and takes one away when the old code is gone.
NEXT = (
    ("0094", RELEASED.newest, "pre", "ALTER TABLE quarantine ADD COLUMN hint TEXT"),
    ("0095", "0094", "post", "ALTER TABLE rebuilt DROP COLUMN flipped_at"),
    ("0096", "0095", "pre", "ALTER TABLE quarantine ADD COLUMN more TEXT"),
)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty database."""
    if request.param == "sqlite":
        return tmp_path / "empty.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.empty()


@pytest.fixture
def empty(place: Place) -> Generator[Engine, None, None]:
    engine = database.migrator(place)
    yield engine
    engine.dispose()


@pytest.fixture
def next_release(tmp_path: Path) -> Steps:
    """The steps of the next version: one pre step and one post step."""
    return release(tmp_path, 2, oldest="0094", newest="0095")


def release(tmp_path: Path, steps: int, *, oldest: str, newest: str) -> Steps:
    folder = tmp_path / f"versions-{newest}"
    folder.mkdir()
    for number, before, phase, sql in NEXT[:steps]:
        step = STEP.format(number=number, before=before, phase=phase, sql=sql)
        (folder / f"{number}_{phase}.py").write_text(step)
    return Steps((*RELEASED.folders, folder), oldest, newest)


def test_the_migrated_schema_equals_the_tables_of_the_code(empty: Engine) -> None:
    joulie_migrations.upgrade(empty)

    assert differences(empty) == []


def tables_in(engine: Engine) -> MetaData:
    """With SQLite the tables of the ledger are in another file."""
    found, is_one = MetaData(), engine.dialect.name == "postgresql"
    for made in (metadata, ledger_metadata) if is_one else (metadata,):
        for table in made.sorted_tables:
            table.to_metadata(found)
    return found


def differences(engine: Engine) -> list[Any]:
    with engine.connect() as db:
        return list(compare_metadata(MigrationContext.configure(db), tables_in(engine)))


def test_the_newest_schema_is_the_last_migration_and_the_oldest_has_every_pre_step() -> None:
    config = Config()
    config.set_main_option("script_location", str(HERE))
    scripts = ScriptDirectory.from_config(config)
    pre = [s.revision for s in scripts.walk_revisions() if s.module.phase == "pre"]

    assert scripts.get_current_head() == joulie_migrations.NEWEST
    assert max(pre) <= joulie_migrations.OLDEST <= joulie_migrations.NEWEST


def test_every_step_has_a_phase() -> None:
    config = Config()
    config.set_main_option("script_location", str(HERE))
    steps = list(ScriptDirectory.from_config(config).walk_revisions())

    assert {step.module.phase for step in steps} <= set(joulie_migrations.PHASES)


def test_an_upgraded_database_is_accepted(empty: Engine) -> None:
    assert joulie_migrations.upgrade(empty) == joulie_migrations.current(empty)

    joulie_migrations.require(empty)


def test_an_empty_database_is_refused_and_left_empty(empty: Engine) -> None:
    with pytest.raises(SchemaMismatch, match="at schema none"):
        joulie_migrations.require(empty)

    assert inspect(empty).get_table_names() == []


@pytest.mark.parametrize("phase", ["", "pre", "post"])
def test_any_phase_migrates_an_empty_database_completely(empty: Engine, phase: str) -> None:
    assert joulie_migrations.upgrade(empty, phase) == joulie_migrations.NEWEST


def test_upgrading_twice_is_harmless(empty: Engine) -> None:
    joulie_migrations.upgrade(empty)
    with empty.begin() as db:
        db.execute(text("INSERT INTO schema_floor VALUES ('0000')"))

    joulie_migrations.upgrade(empty)

    with empty.connect() as db:
        assert db.scalar(text("SELECT count(*) FROM schema_floor")) == 2


@pytest.mark.parametrize("older", ["0001", "0010"])
@pytest.mark.parametrize("phase", ["", "pre", "post"])
def test_a_database_of_a_log_that_is_not_continued_is_refused_and_left_as_it_is(
    empty: Engine, older: str, phase: str
) -> None:
    with empty.begin() as db:
        db.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
        db.execute(text("INSERT INTO alembic_version VALUES (:older)"), {"older": older})

    with pytest.raises(SchemaMismatch, match="which this one does not continue"):
        joulie_migrations.require(empty)
    with pytest.raises(SchemaMismatch, match="read it with the version that wrote it"):
        joulie_migrations.upgrade(empty, phase)
    assert inspect(empty).get_table_names() == ["alembic_version"]


@pytest.fixture
def current_schema(empty: Engine, place: Place) -> Engine:
    """A database at the current schema, with data."""
    joulie_migrations.upgrade(empty)
    writer = database.writer(place)
    run_projector(writer)
    writer.dispose()
    return empty


def run_projector(writer: Engine) -> None:
    """Commits facts like the projector of this code."""
    store = Store(writer)
    held = store.acquire("me", 10, "i", lambda _: True)
    assert held is not None
    cursor = FoldCursor(held.position, held.inputs, held.digests or empty_digests(), held.head)
    messages = records(node_seen("a"), power("a", 1), name=f"n{held.position}")
    done = sequence(
        ClusterState(), cursor, messages, {messages[0].stream: "", messages[1].stream: ""}, noon()
    )
    store.commit(held.epoch, done.commit)


def test_code_of_the_last_version_keeps_working_after_the_pre_steps(
    current_schema: Engine, place: Place, next_release: Steps
) -> None:
    assert joulie_migrations.upgrade(current_schema, "pre", next_release) == "0094"

    joulie_migrations.require(current_schema)
    joulie_migrations.require(current_schema, next_release)
    writer = database.writer(place)
    run_projector(writer)
    held = Store(writer).checkpoint()
    writer.dispose()
    assert held is not None
    assert held.position == 4


def test_the_post_steps_exclude_the_last_version(
    current_schema: Engine, next_release: Steps
) -> None:
    joulie_migrations.upgrade(current_schema, "pre", next_release)

    assert joulie_migrations.upgrade(current_schema, "post", next_release) == "0095"

    joulie_migrations.require(current_schema, next_release)
    with pytest.raises(SchemaMismatch, match="older than the database"):
        joulie_migrations.require(current_schema)
    with pytest.raises(SchemaMismatch, match="older than the database"):
        joulie_migrations.upgrade(current_schema)


def test_new_code_does_not_start_on_an_old_schema(
    current_schema: Engine, next_release: Steps
) -> None:
    with pytest.raises(SchemaMismatch, match=f"at schema {RELEASED.newest}, this code wants 0094"):
        joulie_migrations.require(current_schema, next_release)


def test_a_migration_by_old_code_keeps_the_additions_of_newer_code(
    current_schema: Engine, next_release: Steps
) -> None:
    joulie_migrations.upgrade(current_schema, "pre", next_release)

    assert joulie_migrations.upgrade(current_schema) == "0094"


def test_data_survives_every_step(current_schema: Engine, next_release: Steps) -> None:
    with current_schema.connect() as db:
        before = list(db.execute(text("SELECT * FROM node_twin")))

    joulie_migrations.upgrade(current_schema, "", next_release)

    with current_schema.connect() as db:
        assert list(db.execute(text("SELECT * FROM node_twin"))) == before
        assert db.scalar(text("SELECT hint FROM quarantine")) is None


def test_an_upgrade_that_skips_a_version_needs_a_stop(
    current_schema: Engine, tmp_path: Path
) -> None:
    after_next = release(tmp_path, 3, oldest="0096", newest="0096")

    with pytest.raises(SchemaMismatch, match="Stop it, then run `joulie migrate`"):
        joulie_migrations.upgrade(current_schema, "pre", after_next)

    assert joulie_migrations.upgrade(current_schema, "", after_next) == "0096"


@contextlib.contextmanager
def owned_by(rights: str) -> Generator[str, None, None]:
    """The URL of an empty database of a new server; roles belong to the server."""
    with Postgres.running() as fresh:
        fresh.execute("postgres", f"CREATE ROLE plain LOGIN {rights}")
        fresh.execute("postgres", "CREATE DATABASE plain OWNER plain")
        yield fresh.url("plain", "plain")


@pytest.mark.slow
@pytest.mark.usefixtures("postgres")  # which skips without PostgreSQL
def test_an_owner_without_a_right_gets_one_clear_error() -> None:
    with owned_by("NOCREATEROLE") as url:
        engine = database.migrator(url)
        with pytest.raises(MigrationDenied, match="permission denied"):
            joulie_migrations.upgrade(engine)

        assert inspect(engine).get_table_names() == []
        engine.dispose()


@pytest.mark.slow
@pytest.mark.usefixtures("postgres")
def test_all_processes_may_use_the_owner_that_migrated() -> None:
    with owned_by("CREATEROLE") as url:
        engine = database.migrator(url)
        joulie_migrations.upgrade(engine)
        engine.dispose()

        for opened in (database.writer(url), database.reader(url)):
            with opened.connect() as connection:
                assert connection.scalar(text("SELECT count(*) FROM decision")) == 0
            opened.dispose()
