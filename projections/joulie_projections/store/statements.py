"""The statements of a commit, in the fastest form for each database.

SQLite: statements of many rows, which run without the GIL, so that the fold continues meanwhile;
the remainder goes through `executemany`. The driver is called directly: the overhead of SQLAlchemy
takes as long as a small statement. PostgreSQL: one statement over arrays, slightly faster than COPY
into a staging table and twice as fast as row by row (benchmarks/projector.py); all changes of a
commit form one statement, which takes one round trip instead of six.
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
_ROWS_PER_STATEMENT = 256  # in SQLite; larger statements are no faster
_TYPES = {str: "text", int: "bigint", bytes: "bytea"}


class InsertRows(NamedTuple):
    """Inserts rows into a table. With `keys` it is an upsert: the newest row of each key stays."""

    table: str
    columns: Sequence[str]
    values: Values
    keys: Sequence[str] = ()
    is_generational: bool = False  # the table has a generation, in its first column

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
    """Deletes rows of a generation by key."""

    table: str
    keys: Sequence[str]


RowChange = InsertRows | DeleteRows


class Fence:
    """A conditional update that only the current writer passes; it returns the generation in use.

    The changes of a commit are applied only if the update matches a row.
    """

    def __init__(self, statement: ReturningUpdate[Any]) -> None:
        in_sqlite = statement.compile(dialect=sqlite.dialect())
        self._sql, self._order = in_sqlite.string, in_sqlite.positiontup or ()
        self._fixed = in_sqlite.params
        self._in_postgres = statement.compile(dialect=psycopg.dialect()).string  # type: ignore[no-untyped-call]

    def apply(
        self, db: Connection, values: dict[str, object], changes: Sequence[RowChange]
    ) -> int | None:
        """Applies the changes and returns their generation; None, without a change, if fenced."""
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
    """Applies one change; `generation` is that of generational tables."""
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
    """SQL and arrays of a change. With a `source`, it takes effect only if that has a row."""
    if isinstance(change, DeleteRows):
        using = f" USING {source}" if source else ""
        where = f"t.generation = {generation} AND t.key = ANY(%({name})b::text[])"
        return f"DELETE FROM {change.table} AS t{using} WHERE {where}", {name: list(change.keys)}
    columns = [list(column) for column in zip(*change.values, strict=True)]
    arrays: dict[str, object] = {f"{name}_{at}": column for at, column in enumerate(columns)}
    # %b: the binary format. The text format doubles the size of each body and has to be parsed.
    types = [_TYPES[type(column[0])] for column in columns]
    marks = ", ".join(f"%({it})b::{kind}[]" for it, kind in zip(arrays, types, strict=True))
    beside = f"{source}, " if source else ""
    # Row locks are taken in the order of the given rows.
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
    """The error in the form that the retries recognize."""
    return DBAPIError.instance(sql, None, error, sqlite3.Error)
