"""What the schema of a database says, and what the migrations make of it.

A definition is the statement that created a table, an index or a trigger, as SQLite keeps it.
"""

from collections.abc import Mapping

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import StaticPool

import joulie_migrations

Definitions = Mapping[tuple[str, str], str]  # by kind and name: the statement
_STORED = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'"


def stored_in(db: Connection) -> Definitions:
    """Of a SQLite database. Indexes without a statement belong to the one of their table."""
    return {(kind, name): sql or "" for kind, name, sql in db.execute(text(_STORED))}


def migrated() -> Definitions:
    """Of an empty SQLite database after every migration, in memory."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    try:
        joulie_migrations.upgrade(engine)
        with engine.connect() as db:
            return stored_in(db)
    finally:
        engine.dispose()
