"""The triggers and grants of cuts: only rows before the newest cut may be deleted.

A cut records up to where an archive holds the log. Its entry must have a signed head, and a
snapshot at or after its batch must exist. The entry and the batch of the cut stay: the chains
continue from them. The triggers of both databases allow a DELETE before the newest cut; on
PostgreSQL only the role of the trimmer also has the right to delete.
"""

from joulie_migrations.foreign_rows import IS_FOREIGN
from joulie_migrations.guards import GROWING, READER, WRITER

TRIMMER = "joulie_trimmer"
# The rows of each log that may be deleted, by the newest cut.
DELETABLE = {
    "decision": "pos < {newest_pos}",
    "batch": "p_to < {newest_p_to}",
    "head": "pos < {newest_pos}",
    "quarantine": "position <= {newest_p_to}",
}
_FITS = (
    "EXISTS (SELECT 1 FROM decision WHERE pos = NEW.pos AND hash = NEW.hash) "
    "AND EXISTS (SELECT 1 FROM head WHERE pos = NEW.pos AND hash = NEW.hash AND note = NEW.note) "
    "AND EXISTS (SELECT 1 FROM batch WHERE p_to = NEW.p_to AND head = NEW.manifest_head) "
    "AND EXISTS (SELECT 1 FROM snapshot WHERE position >= NEW.p_to) "
    "AND NOT EXISTS (SELECT 1 FROM cut WHERE pos > NEW.pos OR p_to > NEW.p_to) "
    # A number beyond the next one would leave no room for later cuts.
    "AND NEW.number = coalesce((SELECT max(number) FROM cut), 0) + 1"
)
_NO_PLACE = "the archive cannot be cut off there"
# The rights of the trimmer.
GRANTS = {
    **dict.fromkeys(GROWING, "SELECT, DELETE"),
    "cut": "SELECT, INSERT",
    "snapshot": "SELECT, DELETE",
    "gone": "SELECT, DELETE",
    **dict.fromkeys(
        (
            *("checkpoint", "outcome_due", "rebuilt", "node_twin", "pod", "gpu", "facility"),
            *("producer", "cluster_state", "row_name", "alembic_version", "schema_floor"),
            "foreign_row",
        ),
        "SELECT",
    ),
}


def statements(dialect: str) -> list[str]:
    return _on_postgres() if dialect == "postgresql" else _on_sqlite()


def _may_go(table: str) -> str:
    """Rows before the newest cut, and those that were moved to `foreign_row`."""
    where = DELETABLE[table].format(
        newest_pos="coalesce((SELECT max(pos) FROM cut), 0)",
        newest_p_to="coalesce((SELECT max(p_to) FROM cut), 0)",
    )
    foreign = f" OR ({IS_FOREIGN[table]})" if table in IS_FOREIGN else ""
    return f"OLD.{where}{foreign}"


def _on_sqlite() -> list[str]:
    made: list[str] = []
    for table in GROWING:
        made.append(f"DROP TRIGGER {table}_no_delete")
        made.append(
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} "
            f"WHEN NOT ({_may_go(table)}) "
            f"BEGIN SELECT RAISE(ABORT, 'the table {table} only grows'); END"
        )
    refuse = "SELECT RAISE(ABORT, 'the table cut only grows')"
    for verb in ("UPDATE", "DELETE"):
        made.append(
            f"CREATE TRIGGER cut_no_{verb.lower()} BEFORE {verb} ON cut BEGIN {refuse}; END"
        )
    made.append(
        # REPLACE deletes without firing the delete trigger, also by rowid.
        "CREATE TRIGGER cut_fits BEFORE INSERT ON cut "
        f"WHEN NOT ({_FITS}) OR EXISTS (SELECT 1 FROM cut WHERE rowid = NEW.rowid) "
        f"BEGIN SELECT RAISE(ABORT, '{_NO_PLACE}'); END"
    )
    return made


def _on_postgres() -> list[str]:
    made = [
        f"DO $$ BEGIN CREATE ROLE {TRIMMER} NOLOGIN; "
        "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$",
        f"GRANT USAGE ON SCHEMA public TO {TRIMMER}",
        *(f"GRANT {rights} ON {table} TO {TRIMMER}" for table, rights in GRANTS.items()),
        f"GRANT SELECT ON cut TO {WRITER}, {READER}",
    ]
    for table in GROWING:
        made += _postgres_guards(table, _may_go(table))
    made += _postgres_guards("cut", "false")
    made.append(
        "CREATE FUNCTION joulie_cut_fits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF {_FITS} THEN RETURN NEW; END IF; RAISE EXCEPTION '{_NO_PLACE}'; END $$"
    )
    made.append(
        "CREATE TRIGGER cut_fits BEFORE INSERT ON cut "
        "FOR EACH ROW EXECUTE FUNCTION joulie_cut_fits()"
    )
    made.append(
        "CREATE TRIGGER cut_no_truncate BEFORE TRUNCATE ON cut "
        "FOR EACH STATEMENT EXECUTE FUNCTION joulie_only_grows()"
    )
    return made


def _postgres_guards(table: str, may_go: str) -> list[str]:
    return [
        f"DROP TRIGGER IF EXISTS {table}_no_change ON {table}",
        f"CREATE FUNCTION joulie_only_grows_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN IF TG_OP = 'DELETE' AND ({may_go}) THEN RETURN OLD; END IF; "
        f"RAISE EXCEPTION 'the table {table} only grows'; END $$",
        f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION joulie_only_grows_{table}()",
    ]
