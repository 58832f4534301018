"""Rows of the log that its writer did not write: moves them, and lists what was moved.

On PostgreSQL the functions of the owner move rows: the writer has no right to delete.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, func, select, text

from joulie_migrations import foreign_rows
from joulie_projections.store.database import moving
from joulie_projections.store.statements import run_in_sqlite
from joulie_projections.store.tables import foreign_row


class ForeignRow(NamedTuple):
    table: str
    pos: int
    found_at: int
    event_id: str


def move_entries(db: Connection, after: int, others: Sequence[int] = ()) -> int:
    """Moves the entries after `after`, and those at other positions; returns how many."""
    now = time.time_ns()
    if db.dialect.name == "postgresql":
        call = text("SELECT joulie_move_decisions(:after, CAST(:others AS bigint[]), :now)")
        return int(db.scalar(call, {"after": after, "others": list(others), "now": now}) or 0)
    listed = ", ".join(map(str, others))
    return _moved_in_sqlite(db, foreign_rows.decisions(str(after), f"IN ({listed})", str(now)))


def move_heads(db: Connection, ids: Sequence[bytes]) -> int:
    if not ids:
        return 0
    now = time.time_ns()
    if db.dialect.name == "postgresql":
        call = text("SELECT joulie_move_heads(CAST(:ids AS bytea[]), :now)")
        return int(db.scalar(call, {"ids": list(ids), "now": now}) or 0)
    listed = ", ".join(f"x'{each.hex()}'" for each in ids)
    return _moved_in_sqlite(db, foreign_rows.heads(f"IN ({listed})", str(now)))


def move_manifests(db: Connection, after: int) -> int:
    """The manifests behind a position."""
    now = time.time_ns()
    if db.dialect.name == "postgresql":
        call = text("SELECT joulie_move_manifests(:after, :now)")
        return int(db.scalar(call, {"after": after, "now": now}) or 0)
    return _moved_in_sqlite(db, foreign_rows.manifests(str(after), str(now)))


def _moved_in_sqlite(db: Connection, move: foreign_rows.Move) -> int:
    run_in_sqlite(db, move.copy)
    with moving(db):
        run_in_sqlite(db, move.delete)
        [(count,)] = run_in_sqlite(db, "SELECT changes()")
    return int(count)


def count(db: Connection) -> int:
    return db.scalar(select(func.count()).select_from(foreign_row)) or 0


def first_rows(db: Connection, limit: int) -> list[ForeignRow]:
    """Those that were found first."""
    key = (foreign_row.c.table_name, foreign_row.c.pos, foreign_row.c.found_at)
    found = select(*key, foreign_row.c.event_id).order_by(foreign_row.c.found_at, *key[:2])
    return [ForeignRow._make(row) for row in db.execute(found.limit(limit))]
