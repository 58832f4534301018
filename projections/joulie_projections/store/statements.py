"""What is written for every batch, in the words that each database is quickest with.

SQLite: many rows in one statement, which runs without Python's lock, so that the fold goes on
meanwhile; what is left over through `executemany`. Its driver is called directly: what SQLAlchemy
does around a statement takes as long as a small one. PostgreSQL: one statement over arrays, which
beats COPY into a table of its own by a little, and row by row by half (benchmarks/projector.py);
and all that a commit writes in one statement, which is one way there and back instead of six.
"""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.dml import ReturningUpdate

Values = Sequence[Sequence[object]]
_ROWS_PER_STATEMENT = 256  # rows in one statement of SQLite; more of them are no quicker
_TYPES = {str: "text", int: "bigint", bytes: "bytea"}


class InsertRows(NamedTuple):
    """Rows of one table. Where there are keys, the newest row of each stays."""

    table: str
    columns: Sequence[str]
    values: Values
    keys: Sequence[str] = ()
    is_generational: bool = False  # belongs to a generation, whose column comes first

    def into(self) -> str:
        first = "generation, " if self.is_generational else ""
        return f"INSERT INTO {self.table} ({first}{', '.join(self.columns)})"

    def row(self, generation: str, columns: str) -> str:
        return f"{generation}, {columns}" if self.is_generational else columns

    def on_conflict(self) -> str:
        if not self.keys:
            return ""
        rest = (column for column in self.columns if column not in self.keys)
        newest = ", ".join(f"{column} = excluded.{column}" for column in rest)
        return f" ON CONFLICT ({', '.join(self.keys)}) DO UPDATE SET {newest}"


class DeleteRows(NamedTuple):
    """Rows of a generation that are gone."""

    table: str
    keys: Sequence[str]


RowChange = InsertRows | DeleteRows


class Fence:
    """The update that lets pass the one who may write, and tells him the generation that serves."""

    def __init__(self, statement: ReturningUpdate[Any]) -> None:
        in_sqlite = statement.compile(dialect=sqlite.dialect())
        self._sql, self._order = in_sqlite.string, in_sqlite.positiontup or ()
        self._fixed = in_sqlite.params
        self._in_postgres = statement.compile(dialect=psycopg.dialect()).string  # type: ignore[no-untyped-call]

    def apply(
        self, db: Connection, values: dict[str, object], changes: Sequence[RowChange]
    ) -> int | None:
        """Makes the changes, and says of which generation; None, and no change, if it is shut."""
        given = {**self._fixed, **values}
        if db.dialect.name == "postgresql":
            return self._apply_in_postgres(db, given, changes)
        found = run_in_sqlite(db, self._sql, [given[name] for name in self._order])
        if not found:
            return None
        generation: int = found[0][0]
        for change in changes:
            apply_change(db, change, generation)
        return generation

    def _apply_in_postgres(
        self, db: Connection, given: dict[str, object], changes: Sequence[RowChange]
    ) -> int | None:
        parts = [f"fence AS ({self._in_postgres})"]
        for number, change in enumerate(changes):
            sql, arrays = _for_postgres(change, "fence.generation", "fence", f"c{number}")
            parts.append(f"c{number} AS ({sql})")
            given.update(arrays)
        sql = f"WITH {', '.join(parts)} SELECT generation FROM fence"
        found: int | None = db.exec_driver_sql(sql, given).scalar()
        return found


def apply_change(db: Connection, change: RowChange, generation: int = 0) -> None:
    """`generation` for what belongs to one."""
    if db.dialect.name == "postgresql":
        db.exec_driver_sql(*_for_postgres(change, str(generation), "", "c"))
    elif isinstance(change, InsertRows):
        _put_into_sqlite(db, change, str(generation))
    else:
        sql = f"DELETE FROM {change.table} WHERE generation = {generation} AND key = ?"
        _run_many_in_sqlite(db, sql, [(key,) for key in change.keys])


def _for_postgres(
    change: RowChange, generation: str, source: str, name: str
) -> tuple[str, dict[str, object]]:
    """Beside a `source` nothing happens unless it has a row."""
    if isinstance(change, DeleteRows):
        using = f" USING {source}" if source else ""
        where = f"t.generation = {generation} AND t.key = ANY(%({name})b::text[])"
        return f"DELETE FROM {change.table} AS t{using} WHERE {where}", {name: list(change.keys)}
    columns = [list(column) for column in zip(*change.values, strict=True)]
    arrays: dict[str, object] = {f"{name}_{at}": column for at, column in enumerate(columns)}
    # %b: the binary form. As text each byte of a body would travel as two, and be parsed.
    types = [_TYPES[type(column[0])] for column in columns]
    marks = ", ".join(f"%({it})b::{kind}[]" for it, kind in zip(arrays, types, strict=True))
    beside = f"{source}, " if source else ""
    # Whoever writes several keys takes their locks in one order: rows come as they are given.
    rows = f"SELECT {change.row(generation, 't.*')} FROM {beside}unnest({marks}) AS t"
    return f"{change.into()} {rows}{change.on_conflict()}", arrays


def _put_into_sqlite(db: Connection, put: InsertRows, generation: str) -> None:
    into = f"{put.into()} VALUES "
    row = f"({put.row(generation, ', '.join('?' * len(put.columns)))})"
    whole = len(put.values) - len(put.values) % _ROWS_PER_STATEMENT
    many = f"{into}{', '.join([row] * _ROWS_PER_STATEMENT)}{put.on_conflict()}" if whole else ""
    for at in range(0, whole, _ROWS_PER_STATEMENT):
        part = put.values[at : at + _ROWS_PER_STATEMENT]
        run_in_sqlite(db, many, list(chain.from_iterable(part)))
    if rest := put.values[whole:]:
        _run_many_in_sqlite(db, f"{into}{row}{put.on_conflict()}", rest)


def run_in_sqlite(db: Connection, sql: str, values: Sequence[object] = ()) -> list[Any]:
    try:
        return _driver(db).execute(sql, values).fetchall()
    except sqlite3.Error as error:
        raise _as_sqlalchemy_error(error, sql) from error


def _run_many_in_sqlite(db: Connection, sql: str, values: Values) -> None:
    try:
        _driver(db).executemany(sql, values)
    except sqlite3.Error as error:
        raise _as_sqlalchemy_error(error, sql) from error


def _driver(db: Connection) -> sqlite3.Connection:
    connection = db.connection.driver_connection
    assert isinstance(connection, sqlite3.Connection)
    return connection


def _as_sqlalchemy_error(error: sqlite3.Error, sql: str) -> BaseException:
    """Who has patience with a database knows its errors by these names."""
    return DBAPIError.instance(sql, None, error, sqlite3.Error)
