"""Rows can be deleted in front of a cut and nowhere else; and a cut fits the log."""

import sqlite3
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError

from joulie_audit.testing import Past, small_past_in
from joulie_bus.errors import NotTrimmed
from joulie_bus.testing import ask
from joulie_migrations.cuts import DELETABLE
from joulie_projections.decision_log.heads import Head
from joulie_projections.fold.commit import Cut
from joulie_projections.history.history import History
from joulie_projections.history.trimming import TrimStore, require_trimmer
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.testing import Postgres

pytestmark = pytest.mark.anyio
AT = 12  # a batch of the small past that ends there, and others on both sides of it


@pytest.fixture(params=["database_file", "postgres"], ids=["sqlite", "postgres"])
async def past(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Past, None]:
    found: Any = request.getfixturevalue(request.param)
    place: Place = found if isinstance(found, Path) else found.migrated()
    async with small_past_in(place, tmp_path) as made:
        made.maker.snapshot()
        yield made


@pytest.fixture
def trimmer(past: Past) -> Generator[Engine, None, None]:
    engine = database.trimmer(past.database)
    yield engine
    engine.dispose()


def head_and_manifest(past: Past) -> tuple[Head, bytes]:
    with History.of(past.database) as history:
        manifest = next(history.manifests(AT, AT))
        assert manifest.p_to == AT
        return history.heads()[0], manifest.head


def cut_of(past: Past, **changed: object) -> Cut:
    head, manifest_head = head_and_manifest(past)
    made = Cut(
        number=1,
        pos=head.pos,
        hash=head.hash,
        p_to=AT,
        manifest_head=manifest_head,
        log_seal="a",
        facts_seal="b",
        inputs={},
        signed_at=head.signed_at,
        key_id=head.key_id,
        signature=head.signature,
        made_at=1,
        made_by="me",
    )
    return made._replace(**changed)  # type: ignore[arg-type]


def logs(place: Place) -> list[list[Any]]:
    engine = database.migrator(place)
    with engine.connect() as db:
        found = [
            [tuple(row) for row in db.execute(text(f"SELECT * FROM {table}"))]
            for table in (*DELETABLE, "cut")
        ]
    engine.dispose()
    return found


def refused(engine: Engine, place: Place, statement: str) -> None:
    was = logs(place)
    with pytest.raises(DatabaseError), engine.begin() as db:
        db.exec_driver_sql(statement)
    assert logs(place) == was


async def test_without_a_cut_the_trimmer_deletes_nothing(past: Past, trimmer: Engine) -> None:
    for table in ("decision", "batch", "head"):
        refused(trimmer, past.database, f"DELETE FROM {table}")


async def test_behind_a_cut_the_trimmer_deletes_and_the_place_of_the_cut_stays(
    past: Past, trimmer: Engine
) -> None:
    cut = cut_of(past)
    TrimStore(trimmer).record(cut)

    refused(trimmer, past.database, f"DELETE FROM decision WHERE pos = {cut.pos}")
    refused(trimmer, past.database, f"DELETE FROM head WHERE pos = {cut.pos}")
    refused(trimmer, past.database, f"DELETE FROM batch WHERE p_to = {cut.p_to}")
    with trimmer.begin() as db:
        db.exec_driver_sql(f"DELETE FROM decision WHERE pos < {cut.pos}")
        db.exec_driver_sql(f"DELETE FROM batch WHERE p_to < {cut.p_to}")
        db.exec_driver_sql("DELETE FROM quarantine")
    with History.of(past.database) as history:
        assert next(history.entries()).pos == cut.pos
        assert next(history.manifests()).p_to == AT


WRONG: dict[str, dict[str, object]] = {
    "an entry that no head covers": {"pos": 5},
    "another hash": {"hash": bytes(32)},
    "a position within a batch": {"p_to": AT - 1},
    "another manifest": {"manifest_head": bytes(32)},
    "an entry that is not there": {"pos": 99},
}


@pytest.mark.parametrize("changed", WRONG.values(), ids=WRONG.keys())
async def test_a_cut_that_does_not_fit_the_log_is_refused(
    past: Past, trimmer: Engine, changed: dict[str, object]
) -> None:
    with pytest.raises(DatabaseError, match="cannot be cut off there"):
        TrimStore(trimmer).record(cut_of(past, **changed))


async def test_no_cut_beyond_the_newest_snapshot(past: Past, trimmer: Engine) -> None:
    with trimmer.begin() as db:
        db.exec_driver_sql("DELETE FROM snapshot")

    with pytest.raises(DatabaseError, match="cannot be cut off there"):
        TrimStore(trimmer).record(cut_of(past))


async def test_cuts_only_go_forward(past: Past, trimmer: Engine) -> None:
    store = TrimStore(trimmer)
    store.record(cut_of(past))
    with History.of(past.database) as history:
        earlier = next(history.manifests())

    for changed in (
        {"number": 1},
        {"number": 2, "p_to": earlier.p_to, "manifest_head": earlier.head},
    ):
        with pytest.raises(DatabaseError):
            store.record(cut_of(past, **changed))


CHANGED = [
    "UPDATE cut SET pos = pos + 1",
    "DELETE FROM cut",
    "UPDATE decision SET pos = pos",
    "UPDATE batch SET p_to = p_to",
    "INSERT INTO head SELECT pos + 100, hash, signed_at, key_id, signature FROM head LIMIT 1",
    "INSERT INTO quarantine VALUES (999, 's', 1, 'w', 'b')",
    "UPDATE checkpoint SET position = 0",
    "DELETE FROM checkpoint",
    "DELETE FROM node_twin",
    "DROP TABLE cut",
    "DROP TABLE decision",
]


@pytest.mark.parametrize("statement", CHANGED)
async def test_the_trimmer_changes_nothing_else(
    past: Past, trimmer: Engine, statement: str
) -> None:
    TrimStore(trimmer).record(cut_of(past))

    refused(trimmer, past.database, statement)


async def test_the_writer_of_the_log_can_neither_cut_nor_delete_behind_a_cut(past: Past) -> None:
    engine = database.trimmer(past.database)
    TrimStore(engine).record(cut_of(past))
    engine.dispose()
    writer = database.writer(past.database)

    with pytest.raises(DatabaseError):
        TrimStore(writer).record(cut_of(past, number=2))
    for statement in ("DELETE FROM decision WHERE pos = 1", "DELETE FROM cut", "DROP TABLE cut"):
        refused(writer, past.database, statement)
    writer.dispose()


async def test_the_log_goes_on_behind_a_cut_at_its_very_end(past: Past, trimmer: Engine) -> None:
    with History.of(past.database) as history:
        last = history.heads()[-1]
        assert last.pos == history.tip()
    TrimStore(trimmer).record(cut_of(past, pos=last.pos, hash=last.hash))
    assert sum(TrimStore(trimmer).drop()) > 0

    await past.maker.answer(ask("next"))

    with History.of(past.database) as history:
        assert [entry.pos for entry in history.entries()] == [last.pos, last.pos + 1, last.pos + 2]


# --- past our own connections -----------------------------------------------------------------


@pytest.mark.parametrize("past", ["database_file"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "REPLACE INTO cut SELECT * FROM cut",
        "REPLACE INTO cut (rowid, {all}) SELECT rowid, number + 1, {rest} FROM cut",
        "DELETE FROM cut",
        "UPDATE cut SET pos = pos",
    ],
)
async def test_a_stranger_with_the_file_cannot_change_a_cut(past: Past, statement: str) -> None:
    engine = database.trimmer(past.database)
    TrimStore(engine).record(cut_of(past))
    engine.dispose()
    names = list(Cut._fields)
    assert isinstance(past.database, Path)
    with sqlite3.connect(past.database) as db, pytest.raises(sqlite3.DatabaseError):
        db.execute(statement.format(all=", ".join(names), rest=", ".join(names[1:])))


@pytest.mark.parametrize("past", ["postgres"], indirect=True)
async def test_a_user_of_the_writers_role_is_no_trimmer(past: Past, postgres: Postgres) -> None:
    engine = database.trimmer(past.database)
    TrimStore(engine).record(cut_of(past))
    engine.dispose()
    name = make_url(str(past.database)).database or ""
    for role in ("writer", "reader"):
        user = f"{role}_without_{name}"
        postgres.execute(name, f"CREATE ROLE {user} LOGIN IN ROLE joulie_{role}")
        with psycopg.connect(postgres.url(name, user), autocommit=True) as db:
            for statement in ("DELETE FROM decision WHERE pos = 1", "SET ROLE joulie_trimmer"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    db.execute(statement.encode())
    user = f"trimmer_of_{name}"
    postgres.execute(name, f"CREATE ROLE {user} LOGIN IN ROLE joulie_trimmer")
    with psycopg.connect(postgres.url(name, user), autocommit=True) as db:
        assert db.execute("DELETE FROM decision WHERE pos = 1").rowcount == 1
        for statement in (
            "DELETE FROM decision WHERE pos = 9",
            "TRUNCATE decision",
            "TRUNCATE cut",
            "ALTER TABLE decision DISABLE TRIGGER ALL",
            "INSERT INTO gone VALUES (1, 'node', 'a', 1)",
        ):
            with pytest.raises(psycopg.Error, match=r"permission denied|must be owner|only grows"):
                db.execute(statement.encode())


@pytest.mark.parametrize("past", ["postgres"], indirect=True)
async def test_a_user_who_may_not_trim_is_named_with_the_remedy(
    past: Past, postgres: Postgres
) -> None:
    name = make_url(str(past.database)).database or ""
    user = f"archiver_{name}"
    postgres.execute(name, f"CREATE ROLE {user} LOGIN IN ROLE joulie_writer")
    engine = database.trimmer(postgres.url(name, user))
    with pytest.raises(NotTrimmed, match=f"GRANT joulie_trimmer TO {user}"):
        require_trimmer(engine)
    engine.dispose()
    postgres.execute(name, f"GRANT joulie_trimmer TO {user}")
    engine = database.trimmer(postgres.url(name, user))
    require_trimmer(engine)
    engine.dispose()
