"""Copies a whole database into an empty one, also into the other kind of database.

Every row is copied as it is, so positions, hashes, signatures and cuts stay. The guards of the
append-only tables refuse the first entry of a trimmed log; they are off within the transaction that
copies, and on when it is committed.
"""

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

from sqlalchemy import Connection, Engine, Table, delete, func, insert, select, text

from joulie_bus.errors import CopyDiffers
from joulie_projections.state.rows import STATES, digests_of
from joulie_projections.store.statements import InsertRows, apply_change
from joulie_projections.store.store import read_checkpoint, read_rows
from joulie_projections.store.tables import checkpoint, decision, ledger_metadata, metadata

PORTION = 1000  # rows
_OF_SCHEMA = frozenset({"schema_floor"})  # written by the migrations
_IN_SQLITE = ("pos", "body", "prev", "hash")  # SQLite generates the other columns
TABLES = [table for table in metadata.sorted_tables if table.name not in _OF_SCHEMA]


def copy_database(source: Engine, target: Engine) -> dict[str, int]:
    """Copies all rows of one snapshot in one transaction; returns how many there are by table.

    `target` is an engine of the owner, and its tables are empty.
    """
    with source.connect() as old, old.begin(), target.begin() as new:
        with _without_guards(new):
            counts = {table.name: _copy(old, new, table) for table in TABLES}
        # The timeline is that of the old server, and no process leads on the new one.
        new.execute(checkpoint.update().values(owner="", until=0, timeline=""))
        _require_equal(old, new, counts)
    return counts


def copy_ledger(source: Engine, target: Engine) -> None:
    """Replaces the rows of the target, in one transaction: beside an empty log they are of another
    log, or of a copy that did not finish."""
    with source.connect() as old, old.begin(), target.begin() as new:
        for table in ledger_metadata.sorted_tables:
            new.execute(delete(table))
            _copy(old, new, table)


def _copy(old: Connection, new: Connection, table: Table) -> int:
    found = old.execute(_ordered(table).execution_options(yield_per=PORTION))
    count = 0
    for rows in found.mappings().partitions():
        if table is decision and new.dialect.name == "sqlite":
            apply_change(new, InsertRows(decision.name, _IN_SQLITE, list(map(_in_sqlite, rows))))
        else:
            new.execute(insert(table), [dict(row) for row in rows])
        count += len(rows)
    return count


def _ordered(table: Table) -> Any:
    return select(table).order_by(*table.primary_key.columns)


def _in_sqlite(row: Any) -> tuple[object, ...]:
    return tuple(row[name] for name in _IN_SQLITE)


@contextlib.contextmanager
def _without_guards(db: Connection) -> Generator[None, None, None]:
    if db.dialect.name == "postgresql":
        for table in TABLES:
            db.execute(text(f"ALTER TABLE {table.name} DISABLE TRIGGER USER"))
        yield
        for table in TABLES:
            db.execute(text(f"ALTER TABLE {table.name} ENABLE TRIGGER USER"))
        return
    guards = list(_triggers(db))
    for name, _ in guards:
        db.execute(text(f"DROP TRIGGER {name}"))
    yield
    for _, statement in guards:
        db.exec_driver_sql(statement)


def _triggers(db: Connection) -> Iterator[tuple[str, str]]:
    found = db.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    yield from ((name, sql) for name, sql in found)


def _require_equal(old: Connection, new: Connection, counts: dict[str, int]) -> None:
    """Compares the end of the log, the number of rows, and the digests of the state."""
    for table in TABLES:
        if new.scalar(select(func.count()).select_from(table)) != counts[table.name]:
            raise CopyDiffers(f"the table {table.name}")
    end = select(decision.c.pos, decision.c.hash).order_by(decision.c.pos.desc()).limit(1)
    held = read_checkpoint(new)
    if held is None:
        return
    rows = read_rows(new, tuple(STATES), held.generation)
    if digests_of(rows) != held.digests or old.execute(end).first() != new.execute(end).first():
        raise CopyDiffers("the rows or of the log")
