"""The statements that run for every batch, in the words that each database is quickest with.

SQLite: many rows in one statement, which runs without Python's lock, so that the fold goes on
meanwhile; what is left over through `executemany`. PostgreSQL: one statement over arrays, which
beats COPY into a table of its own by a little, and row by row by half (benchmarks/projector.py).
"""

from collections.abc import Sequence
from itertools import chain

from sqlalchemy import Connection

Values = Sequence[Sequence[object]]
_AT_ONCE = 256  # rows in one statement of SQLite; more of them are no quicker
_TYPES = {str: "text", int: "bigint", bytes: "bytea"}


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
        db.exec_driver_sql(sql, [(generation, key) for key in keys])


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
        db.exec_driver_sql(many, tuple(chain.from_iterable(part)))
    if rest := [tuple(row) for row in values[whole:]]:
        db.exec_driver_sql(f"{into}{row}{suffix}", rest)
