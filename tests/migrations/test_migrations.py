"""The schema that the migrations make is the one that the code thinks of."""

from collections.abc import Generator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

import joulie_migrations
from joulie_bus.errors import SchemaMismatch
from joulie_projections import database
from joulie_projections.tables import metadata

HERE = Path(joulie_migrations.__file__).parent


@pytest.fixture
def empty(tmp_path: Path) -> Generator[Engine, None, None]:
    engine = database.migrator(tmp_path / "empty.db")
    yield engine
    engine.dispose()


def at_schema(engine: Engine, revision: str) -> None:
    joulie_migrations.upgrade(engine)
    with engine.begin() as db:
        db.execute(text("UPDATE alembic_version SET version_num = :r"), {"r": revision})


def test_the_upgraded_schema_is_the_one_the_code_works_with(empty: Engine) -> None:
    joulie_migrations.upgrade(empty)

    with empty.connect() as db:
        assert compare_metadata(MigrationContext.configure(db), metadata) == []


def test_the_newest_schema_is_the_last_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(HERE))

    assert ScriptDirectory.from_config(config).get_current_head() == joulie_migrations.NEWEST


def test_an_upgraded_database_is_accepted(empty: Engine) -> None:
    assert joulie_migrations.upgrade(empty) == joulie_migrations.current(empty)

    joulie_migrations.require(empty)


def test_an_empty_database_is_refused_and_left_empty(empty: Engine) -> None:
    with pytest.raises(SchemaMismatch, match="at schema none"):
        joulie_migrations.require(empty)

    assert inspect(empty).get_table_names() == []


def test_a_schema_of_the_future_is_refused_by_those_who_serve_and_by_the_upgrade(
    empty: Engine,
) -> None:
    at_schema(empty, "9999")

    with pytest.raises(SchemaMismatch, match="at schema 9999"):
        joulie_migrations.require(empty)
    with pytest.raises(SchemaMismatch, match="at schema 9999"):
        joulie_migrations.upgrade(empty)


def test_upgrading_twice_is_harmless(empty: Engine) -> None:
    joulie_migrations.upgrade(empty)
    with empty.begin() as db:
        db.execute(text("INSERT INTO pod VALUES ('p', 1, x'00')"))

    joulie_migrations.upgrade(empty)

    with empty.connect() as db:
        assert db.scalar(text("SELECT count(*) FROM pod")) == 1
