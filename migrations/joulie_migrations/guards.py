"""The triggers, checks and grants that keep the logs append-only in the database.

They are one of several layers (docs/decisions/0004): the hash chain shows changes that get past
them. Steps after the first schema change them by their own statements; these stay as released.
"""

GROWING = {"decision": "pos", "batch": "p_to", "head": "id", "quarantine": "position"}
WRITER, READER = "joulie_writer", "joulie_reader"
CHAINED_HASH = "hash = sha256(prev || body)"

# All rights of the writer. Only the owner of the tables has the right to UPDATE, DELETE or TRUNCATE
# the append-only ones, and the triggers refuse that to the owner, too.
GRANTS = {
    **dict.fromkeys(GROWING, "SELECT, INSERT"),
    "rebuilt": "SELECT, INSERT",
    "checkpoint": "SELECT, INSERT, UPDATE",
    "snapshot": "SELECT, INSERT, DELETE",
    "outcome_due": "SELECT, INSERT, DELETE",
    **dict.fromkeys(
        ("node_twin", "pod", "gpu", "facility", "producer", "cluster_state", "gone"),
        "SELECT, INSERT, UPDATE, DELETE",
    ),
    "row_name": "SELECT, INSERT, UPDATE",
    "alembic_version": "SELECT",
    "schema_floor": "SELECT",
}


# An entry follows the last one: not one whose successor was trimmed.
_FOLLOWS = (
    "(NEW.pos = 1 AND NOT EXISTS (SELECT 1 FROM decision)) OR EXISTS ("
    "SELECT 1 FROM (SELECT pos, hash FROM decision ORDER BY pos DESC LIMIT 1) AS newest "
    "WHERE newest.pos = NEW.pos - 1 AND newest.hash = NEW.prev)"
)


def statements(dialect: str) -> list[str]:
    return _on_postgres() if dialect == "postgresql" else _on_sqlite()


def _on_sqlite() -> list[str]:
    return [
        *(statement for table in GROWING for statement in _sqlite_guards(table)),
        f"CREATE TRIGGER decision_chained BEFORE INSERT ON decision WHEN NOT ({_FOLLOWS}) "
        "BEGIN SELECT RAISE(ABORT, 'the decision log has no such place'); END",
    ]


def _sqlite_guards(table: str) -> list[str]:
    refuse = f"SELECT RAISE(ABORT, 'the table {table} only grows')"
    # REPLACE deletes without firing the delete trigger, so an insert of an existing key is refused.
    # That includes the rowid: a statement may replace a row by it.
    keys = [GROWING[table], "rowid", *(["event_id"] if table == "decision" else [])]
    exists = " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE {k} = NEW.{k})" for k in keys)
    return [
        f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} BEGIN {refuse}; END",
        f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} BEGIN {refuse}; END",
        f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {exists} "
        f"BEGIN {refuse}; END",
    ]


def _on_postgres() -> list[str]:
    return [*_roles(), *_postgres_guards(), *_chained()]


def _roles() -> list[str]:
    """Two roles without login, which an administrator grants to users."""
    made = [
        f"DO $$ BEGIN CREATE ROLE {role} NOLOGIN; "
        # The databases of a server share roles, and two may be created at the same time.
        "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        for role in (WRITER, READER)
    ]
    made.append("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    made.append(f"GRANT USAGE ON SCHEMA public TO {WRITER}, {READER}")
    for table, rights in GRANTS.items():
        made.append(f"GRANT {rights} ON {table} TO {WRITER}")
        made.append(f"GRANT SELECT ON {table} TO {READER}")
    return made


def _postgres_guards() -> list[str]:
    made = [
        "CREATE FUNCTION joulie_only_grows() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION 'the table % only grows', TG_TABLE_NAME; END $$"
    ]
    for table in GROWING:
        made.append(
            f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION joulie_only_grows()"
        )
        made.append(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION joulie_only_grows()"
        )
    return made


def _chained() -> list[str]:
    return [
        f"ALTER TABLE decision ADD CONSTRAINT decision_hash CHECK ({CHAINED_HASH})",
        "CREATE FUNCTION joulie_chained() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF {_FOLLOWS} THEN RETURN NEW; END IF; "
        "RAISE EXCEPTION 'the decision log has no such place' USING ERRCODE = 'check_violation'; "
        "END $$",
        "CREATE TRIGGER decision_chained BEFORE INSERT ON decision "
        "FOR EACH ROW EXECUTE FUNCTION joulie_chained()",
    ]
