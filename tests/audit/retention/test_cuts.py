"""Rows can be deleted only before a cut, and a cut must match the log."""

import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from sqlalchemy import Engine, insert, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError

from audit_kit import RecordedLog, small_log_in
from bus_kit import ask
from joulie_audit.verify.verify import verify
from joulie_bus.errors import NotTrimmed
from joulie_migrations.cuts import DELETABLE
from joulie_projections.decision_log import tree
from joulie_projections.decision_log.heads import Head
from joulie_projections.fold.commit import Cut, Input
from joulie_projections.history.history import History
from joulie_projections.history.stored_tree import StoredTree
from joulie_projections.history.trimming import TrimStore, require_trimmer
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.store.tables import cut
from projections_kit import Postgres

pytestmark = pytest.mark.anyio
AT = 12  # the end of a batch of the small log, with batches on both sides


@pytest.fixture(params=["database_file", "postgres"], ids=["sqlite", "postgres"])
async def recorded(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[RecordedLog, None]:
    found: Any = request.getfixturevalue(request.param)
    place: Place = found if isinstance(found, Path) else found.migrated()
    async with small_log_in(place, tmp_path) as made:
        made.builder.snapshot()
        yield made


@pytest.fixture
def trimmer(recorded: RecordedLog) -> Generator[Engine, None, None]:
    engine = database.trimmer(recorded.database)
    yield engine
    engine.dispose()


def head_and_manifest(recorded: RecordedLog) -> tuple[Head, bytes]:
    with History.of(recorded.database) as history:
        manifest = next(history.manifests(AT, AT))
        assert manifest.p_to == AT
        return history.heads()[0], manifest.head


def cut_of(recorded: RecordedLog, **changed: object) -> Cut:
    head, manifest_head = head_and_manifest(recorded)
    made = Cut(
        number=1,
        pos=head.pos,
        hash=head.hash,
        p_to=AT,
        manifest_head=manifest_head,
        log_seal="a",
        facts_seal="b",
        inputs={},
        note=head.note.encode(),
        edge=b"",
        made_at=1,
        made_by="me",
    )
    return made._replace(**changed)  # type: ignore[arg-type]


def edge_and_inputs(recorded: RecordedLog, pos: int) -> tuple[bytes, bytes]:
    """The true ones of a cut, as the database has them."""
    with History.of(recorded.database) as history:
        ranges = [each for made in history.manifests() if made.p_to <= AT for each in made.ranges]
        inputs = {each.stream: Input("", each.last) for each in ranges}
        return StoredTree(history).frontier_at(pos).edge, msgspec.msgpack.encode(inputs)


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


async def test_without_a_cut_the_trimmer_deletes_nothing(
    recorded: RecordedLog, trimmer: Engine
) -> None:
    for table in ("decision", "batch", "head"):
        refused(trimmer, recorded.database, f"DELETE FROM {table}")


async def test_the_trimmer_deletes_rows_before_a_cut_and_keeps_the_rows_at_the_cut(
    recorded: RecordedLog, trimmer: Engine
) -> None:
    cut = cut_of(recorded)
    TrimStore(trimmer).record(cut)

    refused(trimmer, recorded.database, f"DELETE FROM decision WHERE pos = {cut.pos}")
    refused(trimmer, recorded.database, f"DELETE FROM head WHERE pos = {cut.pos}")
    refused(trimmer, recorded.database, f"DELETE FROM batch WHERE p_to = {cut.p_to}")
    with trimmer.begin() as db:
        db.exec_driver_sql(f"DELETE FROM decision WHERE pos < {cut.pos}")
        db.exec_driver_sql(f"DELETE FROM batch WHERE p_to < {cut.p_to}")
        db.exec_driver_sql("DELETE FROM quarantine")
    with History.of(recorded.database) as history:
        assert next(history.entries()).pos == cut.pos
        assert next(history.manifests()).p_to == AT


WRONG: dict[str, dict[str, object]] = {
    "an entry that no head covers": {"pos": 5},
    "another hash": {"hash": bytes(32)},
    "a position within a batch": {"p_to": AT - 1},
    "another manifest": {"manifest_head": bytes(32)},
    "an entry that is not there": {"pos": 99},
    "a head that is not of the log": {"note": b"joulie/other\n7\n"},
    "a number after which no other cut can follow": {"number": 2**62},
}


@pytest.mark.parametrize("changed", WRONG.values(), ids=WRONG.keys())
async def test_a_cut_that_does_not_match_the_log_is_refused(
    recorded: RecordedLog, trimmer: Engine, changed: dict[str, object]
) -> None:
    with pytest.raises(DatabaseError, match="cannot be cut off there"):
        TrimStore(trimmer).record(cut_of(recorded, **changed))


async def test_a_cut_after_the_newest_snapshot_is_refused(
    recorded: RecordedLog, trimmer: Engine
) -> None:
    with trimmer.begin() as db:
        db.exec_driver_sql("DELETE FROM snapshot")

    with pytest.raises(DatabaseError, match="cannot be cut off there"):
        TrimStore(trimmer).record(cut_of(recorded))


async def test_cuts_only_go_forward(recorded: RecordedLog, trimmer: Engine) -> None:
    store = TrimStore(trimmer)
    store.record(cut_of(recorded))
    with History.of(recorded.database) as history:
        earlier = next(history.manifests())

    for changed in (
        {"number": 1},
        {"number": 2, "p_to": earlier.p_to, "manifest_head": earlier.head},
    ):
        with pytest.raises(DatabaseError):
            store.record(cut_of(recorded, **changed))


@pytest.mark.parametrize(
    ("column", "forged"),
    [("edge", b""), ("edge", bytes(96)), ("edge", b"x"), ("inputs", b"\xff"), ("inputs", b"")],
    ids=["no edge", "another edge", "half an edge", "no map", "no inputs"],
)
async def test_a_cut_with_forged_contents_makes_no_log_corrupted_and_ends_no_process(
    recorded: RecordedLog, trimmer: Engine, column: str, forged: bytes
) -> None:
    """The role of the trimmer can record it: the triggers cannot compute subtrees."""
    true = cut_of(recorded)
    with trimmer.begin() as db:
        edge, inputs = edge_and_inputs(recorded, true.pos)
        row = {**true._asdict(), "inputs": inputs, "edge": edge}
        for number, changed in ((1, {}), (2, {column: forged})):
            db.execute(insert(cut).values(**{**row, "number": number, **changed}))

    with History.of(recorded.database) as history:
        public = recorded.builder.signer.public
        assert verify(history, public, ()).flaw is None
        assert StoredTree(history).frontier_at(9).root == history.heads()[-1].checkpoint.root
        assert tree.read(history.connection, 9) is not None


CHANGED = [
    "UPDATE cut SET pos = pos + 1",
    "DELETE FROM cut",
    "UPDATE decision SET pos = pos",
    "UPDATE batch SET p_to = p_to",
    "INSERT INTO head SELECT hash, pos + 100, p_to, hash, note, quota FROM head LIMIT 1",
    "INSERT INTO quarantine VALUES (999, 's', 1, 'w', 'b')",
    "UPDATE checkpoint SET position = 0",
    "DELETE FROM checkpoint",
    "DELETE FROM node_twin",
    "DROP TABLE cut",
    "DROP TABLE decision",
]


@pytest.mark.parametrize("statement", CHANGED)
async def test_the_trimmer_can_change_no_other_rows(
    recorded: RecordedLog, trimmer: Engine, statement: str
) -> None:
    TrimStore(trimmer).record(cut_of(recorded))

    refused(trimmer, recorded.database, statement)


async def test_the_log_writer_can_neither_cut_nor_delete_rows_before_a_cut(
    recorded: RecordedLog,
) -> None:
    engine = database.trimmer(recorded.database)
    TrimStore(engine).record(cut_of(recorded))
    engine.dispose()
    writer = database.writer(recorded.database)

    with pytest.raises(DatabaseError):
        TrimStore(writer).record(cut_of(recorded, number=2))
    for statement in ("DELETE FROM decision WHERE pos = 1", "DELETE FROM cut", "DROP TABLE cut"):
        refused(writer, recorded.database, statement)
    writer.dispose()


async def test_the_log_continues_after_a_cut_at_its_last_entry(
    recorded: RecordedLog, trimmer: Engine
) -> None:
    with History.of(recorded.database) as history:
        last = history.heads()[-1]
        assert last.pos == history.tip()
    note = last.note.encode()
    TrimStore(trimmer).record(cut_of(recorded, pos=last.pos, hash=last.hash, note=note))
    assert sum(TrimStore(trimmer).drop()) > 0

    await recorded.builder.answer(ask("next"))

    with History.of(recorded.database) as history:
        assert [entry.pos for entry in history.entries()] == [last.pos, last.pos + 1, last.pos + 2]


# --- other connections ------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", ["database_file"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "REPLACE INTO cut SELECT * FROM cut",
        "REPLACE INTO cut (rowid, {all}) SELECT rowid, number + 1, {rest} FROM cut",
        "DELETE FROM cut",
        "UPDATE cut SET pos = pos",
    ],
)
async def test_another_connection_to_the_file_cannot_change_a_cut(
    recorded: RecordedLog, statement: str
) -> None:
    engine = database.trimmer(recorded.database)
    TrimStore(engine).record(cut_of(recorded))
    engine.dispose()
    names = list(Cut._fields)
    assert isinstance(recorded.database, Path)
    with (
        contextlib.closing(sqlite3.connect(recorded.database)) as db,
        pytest.raises(sqlite3.DatabaseError),
    ):
        db.execute(statement.format(all=", ".join(names), rest=", ".join(names[1:])))


@pytest.mark.parametrize("recorded", ["postgres"], indirect=True)
async def test_a_user_with_the_writer_role_cannot_trim(
    recorded: RecordedLog, postgres: Postgres
) -> None:
    engine = database.trimmer(recorded.database)
    TrimStore(engine).record(cut_of(recorded))
    engine.dispose()
    name = make_url(str(recorded.database)).database or ""
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


@pytest.mark.parametrize("recorded", ["postgres"], indirect=True)
async def test_a_user_without_the_trimmer_role_gets_an_error_with_the_remedy(
    recorded: RecordedLog, postgres: Postgres
) -> None:
    name = make_url(str(recorded.database)).database or ""
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
