"""The statements that run for every batch, in the words that each database is quickest with.

SQLite: many rows in one statement, which runs without Python's lock, so that the fold goes on
meanwhile; what is left over through `executemany`. Its driver is called directly: what SQLAlchemy
does around a statement takes as long as a small one. PostgreSQL: one statement over arrays, which
beats COPY into a table of its own by a little, and row by row by half (benchmarks/projector.py).
"""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.dml import ReturningUpdate

Values = Sequence[Sequence[object]]
_AT_ONCE = 256  # rows in one statement of SQLite; more of them are no quicker
_TYPES = {str: "text", int: "bigint", bytes: "bytea"}


class Prepared:
    """Put together once, for each time that it runs."""

    def __init__(self, statement: ReturningUpdate[Any]) -> None:
        self._statement = statement
        compiled = statement.compile(dialect=sqlite.dialect())
        self._sql, self._order = compiled.string, compiled.positiontup or ()
        self._fixed = compiled.params

    def scalar(self, db: Connection, **values: object) -> Any:
        if db.dialect.name != "sqlite":
            return db.scalar(self._statement, values)
        given = {**self._fixed, **values}
        found = run_in_sqlite(db, self._sql, [given[name] for name in self._order])
        return found[0][0] if found else None


def upsert(
    db: Connection, table: str, columns: Sequence[str], keys: Sequence[str], values: Values
) -> None:
    """The newest value of each key stays."""
    rest = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in keys)
    _insert(db, table, columns, values, f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {rest}")


def insert(db: Connection, table: str, columns: Sequence[str], values: Values) -> None:
    _insert(db, table, columns, values, "")


def delete(db: Connection, table: str, generation: int, keys: Sequence[str]) -> None:
    if db.dialect.name == "postgresql":
        sql = f"DELETE FROM {table} WHERE generation = %s AND key = ANY(%s)"
        db.exec_driver_sql(sql, (generation, list(keys)))
    else:
        sql = f"DELETE FROM {table} WHERE generation = ? AND key = ?"
        _run_many_in_sqlite(db, sql, [(generation, key) for key in keys])


def _insert(
    db: Connection, table: str, columns: Sequence[str], values: Values, suffix: str
) -> None:
    if not values:
        return
    into = f"INSERT INTO {table} ({', '.join(columns)})"
    if db.dialect.name != "postgresql":
        _insert_into_sqlite(db, f"{into} VALUES ", values, suffix)
        return
    arrays = tuple(list(column) for column in zip(*values, strict=True))
    # %b: the binary form. As text each byte of a body would travel as two, and be parsed.
    marks = ", ".join(f"%b::{_TYPES[type(array[0])]}[]" for array in arrays)
    # Whoever writes several keys takes their locks in one order: rows come as they are given.
    db.exec_driver_sql(f"{into} SELECT * FROM unnest({marks}){suffix}", arrays)


def _insert_into_sqlite(db: Connection, into: str, values: Values, suffix: str) -> None:
    row = f"({', '.join('?' * len(values[0]))})"
    whole = len(values) - len(values) % _AT_ONCE
    many = f"{into}{', '.join([row] * _AT_ONCE)}{suffix}" if whole else ""
    for first in range(0, whole, _AT_ONCE):
        part = values[first : first + _AT_ONCE]
        run_in_sqlite(db, many, list(chain.from_iterable(part)))
    if rest := values[whole:]:
        _run_many_in_sqlite(db, f"{into}{row}{suffix}", rest)


def run_in_sqlite(db: Connection, sql: str, values: Sequence[object] = ()) -> list[Any]:
    try:
        return _driver(db).execute(sql, values).fetchall()
    except sqlite3.Error as error:
        raise _as_told_by_sqlalchemy(error, sql) from error


def _run_many_in_sqlite(db: Connection, sql: str, values: Values) -> None:
    try:
        _driver(db).executemany(sql, values)
    except sqlite3.Error as error:
        raise _as_told_by_sqlalchemy(error, sql) from error


def _driver(db: Connection) -> sqlite3.Connection:
    connection = db.connection.driver_connection
    assert isinstance(connection, sqlite3.Connection)
    return connection


def _as_told_by_sqlalchemy(error: sqlite3.Error, sql: str) -> BaseException:
    """Who has patience with a database knows its errors by these names."""
    return DBAPIError.instance(sql, None, error, sqlite3.Error)
