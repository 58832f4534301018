"""The tables of the ledger, which it alone writes.

On PostgreSQL they have a role of their own. With SQLite they are in a file of their own, which the
ledger creates: the file of the log is written by the projector and the trimmer only.
"""

from joulie_migrations.guards import READER, WRITER

LEDGER = "joulie_ledger"
_TABLES = {
    "energy": "grain TEXT NOT NULL, start_ms BIGINT NOT NULL, kind TEXT NOT NULL, "
    "body {bytes} NOT NULL, PRIMARY KEY (grain, start_ms, kind)",
    "energy_state": "name TEXT NOT NULL PRIMARY KEY, position BIGINT NOT NULL, "
    "digest {bytes} NOT NULL, body {bytes} NOT NULL",
}
# The rights of the ledger beside those on its tables: the schema, and how old the log is.
_READ = ("batch", "alembic_version", "schema_floor")


def on_sqlite(schema: str = "main") -> list[str]:
    """For the file of the ledger, whether it is new or not."""
    return _created(f"IF NOT EXISTS {schema}.", "BLOB")


def _created(before: str, kind: str) -> list[str]:
    return [
        f"CREATE TABLE {before}{table} ({columns.format(bytes=kind)})"
        for table, columns in _TABLES.items()
    ]


def statements(dialect: str) -> list[str]:
    """For the database of the log."""
    return _on_postgres() if dialect == "postgresql" else []


def _on_postgres() -> list[str]:
    return [
        *_created("", "BYTEA"),
        f"DO $$ BEGIN CREATE ROLE {LEDGER} NOLOGIN; "
        "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$",
        f"GRANT USAGE ON SCHEMA public TO {LEDGER}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(_TABLES)} TO {LEDGER}",
        f"GRANT SELECT ON {', '.join(_READ)} TO {LEDGER}",
        f"GRANT SELECT ON {', '.join(_TABLES)} TO {READER}, {WRITER}",
    ]
