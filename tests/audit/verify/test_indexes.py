"""An index that hides entries from readers is reported, although every entry is correct."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from audit_kit import RecordedLog, small_log_in
from joulie_audit.chain.entries import Flaw
from joulie_audit.verify.verify import ALL_ENTRIES, verify
from joulie_projections.history.history import EntryQuery
from projections_kit import Postgres

pytestmark = pytest.mark.anyio

HIDDEN = "CASE WHEN pos = 4 THEN 'x' ELSE ("
POD = "pod TEXT NOT NULL GENERATED ALWAYS AS ("
CAUSE = "so readers may not find every entry, or the log is not guarded"


def rebuilt_over_an_exchanged_table(db: sqlite3.Connection) -> None:
    """The index is built while the table gives entry 4 another pod."""
    (table,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'decision'").fetchone()
    start = table.index(POD) + len(POD)
    end = table.index(") VIRTUAL", start)
    exchanged = f"{table[:start]}{HIDDEN}{table[start:end]}) END{table[end:]}"
    db.execute("PRAGMA writable_schema = on")
    for definition in (exchanged, table):
        db.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'decision'", (definition,))
        db.execute("PRAGMA writable_schema = reset")
        db.execute("PRAGMA writable_schema = on")
        if definition is exchanged:
            db.execute("REINDEX decision_by_pod")


def made_of_fewer_entries(db: sqlite3.Connection) -> None:
    db.execute("DROP INDEX decision_by_pod")
    db.execute("CREATE INDEX decision_by_pod ON decision (pod) WHERE pos <> 4")


def made_of_another_column(db: sqlite3.Connection) -> None:
    db.execute("DROP INDEX decision_by_pod")
    db.execute("CREATE INDEX decision_by_pod ON decision (kind)")


def removed(db: sqlite3.Connection) -> None:
    db.execute("DROP INDEX decision_by_pod")


def guard_removed(db: sqlite3.Connection) -> None:
    db.execute("DROP TRIGGER decision_no_update")


def guard_weakened(db: sqlite3.Connection) -> None:
    db.execute("DROP TRIGGER decision_no_update")
    db.execute(
        "CREATE TRIGGER decision_no_update BEFORE UPDATE ON decision WHEN OLD.pos > 4 "
        "BEGIN SELECT RAISE(ABORT, 'the table decision only grows'); END"
    )


def trigger_added(db: sqlite3.Connection) -> None:
    db.execute("CREATE TRIGGER forget AFTER INSERT ON quarantine BEGIN DELETE FROM producer; END")


OTHER = "has another definition than the migrations gave it"
EXCHANGED = {
    rebuilt_over_an_exchanged_table: "an index or a page of the database does not match its table: "
    "row 4 missing from index decision_by_pod",
    made_of_fewer_entries: f"the index decision_by_pod {OTHER}, {CAUSE}",
    made_of_another_column: f"the index decision_by_pod {OTHER}, {CAUSE}",
    removed: f"the index decision_by_pod is missing, {CAUSE}",
    guard_removed: f"the trigger decision_no_update is missing, {CAUSE}",
    guard_weakened: f"the trigger decision_no_update {OTHER}, {CAUSE}",
    trigger_added: f"no migration made the trigger forget, {CAUSE}",
}


async def flaw_of(recorded: RecordedLog) -> Flaw | None:
    async with recorded.reading() as (history, _):
        return verify(history, recorded.builder.signer.public, (), ALL_ENTRIES).flaw


@pytest.mark.parametrize(
    ("exchange", "what"), EXCHANGED.items(), ids=[e.__name__ for e in EXCHANGED]
)
async def test_an_exchanged_definition_is_reported(
    small_log: RecordedLog, exchange: Callable[[sqlite3.Connection], None], what: str
) -> None:
    with contextlib.closing(sqlite3.connect(small_log.database)) as db, db:
        exchange(db)

    assert await flaw_of(small_log) == Flaw(0, what)


async def test_an_index_over_an_exchanged_table_hides_an_entry_of_a_pod(
    small_log: RecordedLog,
) -> None:
    async with small_log.reading() as (history, _):
        entry = history.entry(4)
        assert entry is not None
        query = EntryQuery(pod=entry.pod)
        before = [found.pos for found in history.find(query)]
    with contextlib.closing(sqlite3.connect(small_log.database)) as db, db:
        rebuilt_over_an_exchanged_table(db)

    async with small_log.reading() as (history, _):
        after = [found.pos for found in history.find(query)]

    assert set(before) - set(after) == {4}


ON_POSTGRES = {
    "CREATE INDEX decision_by_pod ON decision (pod) WHERE pos <> 4": f"the index {{}} {OTHER}",
    "CREATE INDEX decision_by_pod ON decision (left(pod, 4))": f"the index {{}} {OTHER}",
    "CREATE INDEX decision_by_pod ON decision (kind)": f"the index {{}} {OTHER}",
    "SELECT 1": "the index {} is missing",
}


@pytest.mark.parametrize(("statement", "what"), ON_POSTGRES.items())
async def test_an_index_of_another_definition_is_reported_on_postgres(
    postgres: Postgres, tmp_path: Path, statement: str, what: str
) -> None:
    async with small_log_in(postgres.migrated(), tmp_path) as recorded:
        with psycopg.connect(str(recorded.database)) as db:
            db.execute("DROP INDEX decision_by_pod")
            db.execute(statement.encode())

        found = await flaw_of(recorded)

    assert found == Flaw(0, f"{what.format('decision_by_pod')}, {CAUSE}")


async def test_a_disabled_guard_is_reported_on_postgres(postgres: Postgres, tmp_path: Path) -> None:
    async with small_log_in(postgres.migrated(), tmp_path) as recorded:
        with psycopg.connect(str(recorded.database)) as db:
            db.execute("ALTER TABLE decision DISABLE TRIGGER decision_no_change")

        found = await flaw_of(recorded)

    what = "the trigger decision_no_change of the table decision is disabled"
    assert found == Flaw(0, f"{what}, {CAUSE}")


GUARDS_ON_POSTGRES = {
    "CREATE OR REPLACE FUNCTION joulie_chained() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RETURN NEW; END $$": "the function joulie_chained is missing, or has another source "
    "than the migrations gave it",
    "ALTER TABLE decision DROP CONSTRAINT decision_hash": "the check decision_hash of the table "
    "decision is not what the migrations made",
    "ALTER TABLE decision DROP CONSTRAINT decision_hash, "
    "ADD CONSTRAINT decision_hash CHECK (pos > 0)": "the check decision_hash of the table "
    "decision is not what the migrations made",
    "DROP TRIGGER decision_no_truncate ON decision": "the trigger decision_no_truncate of the "
    "table decision is not what the migrations made",
    "CREATE OR REPLACE TRIGGER decision_no_change BEFORE UPDATE ON decision FOR EACH ROW "
    "EXECUTE FUNCTION joulie_only_grows()": "the trigger decision_no_change of the table decision "
    "is not what the migrations made",
    "CREATE OR REPLACE TRIGGER decision_chained BEFORE INSERT ON decision FOR EACH ROW "
    "WHEN (NEW.pos < 0) EXECUTE FUNCTION joulie_chained()": "the trigger decision_chained of the "
    "table decision is not what the migrations made",
    "CREATE TRIGGER other BEFORE INSERT ON decision FOR EACH ROW "
    "EXECUTE FUNCTION joulie_chained()": "the trigger other of the table decision is not what the "
    "migrations made",
    "CREATE RULE hidden AS ON INSERT TO head DO INSTEAD NOTHING": "no migration made the rule "
    "hidden of the table head",
}


@pytest.mark.parametrize(("statement", "what"), GUARDS_ON_POSTGRES.items())
async def test_a_guard_that_no_migration_made_is_reported_on_postgres(
    postgres: Postgres, tmp_path: Path, statement: str, what: str
) -> None:
    async with small_log_in(postgres.migrated(), tmp_path) as recorded:
        before = await flaw_of(recorded)
        with psycopg.connect(str(recorded.database)) as db:
            db.execute(statement.encode())

        found = await flaw_of(recorded)

    assert (before, found) == (None, Flaw(0, f"{what}, {CAUSE}"))
