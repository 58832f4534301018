"""The triggers and grants of the Merkle tree's tables. Step 0010.

Tiles and checkpoints only grow, like the log. Checkpoints before the newest cut may be deleted.
"""

from joulie_migrations.cuts import TRIMMER
from joulie_migrations.guards import READER, WRITER

KEYS = {"tree_tile": "number", "tree_head": "pos"}
_BEHIND = "OLD.pos < coalesce((SELECT max(pos) FROM cut), 0)"


def statements(dialect: str) -> list[str]:
    return _on_postgres() if dialect == "postgresql" else _on_sqlite()


def _on_sqlite() -> list[str]:
    made = list[str]()
    for table, key in KEYS.items():
        refuse = f"BEGIN SELECT RAISE(ABORT, 'the table {table} only grows'); END"
        unless = f" WHEN NOT ({_BEHIND})" if table == "tree_head" else ""
        known = f"SELECT 1 FROM {table} WHERE {key} = NEW.{key} OR rowid = NEW.rowid"
        made += [
            f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {refuse}",
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table}{unless} {refuse}",
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "
            f"WHEN EXISTS ({known}) {refuse}",
        ]
    return made


def _on_postgres() -> list[str]:
    made = [
        f"GRANT SELECT, INSERT ON tree_tile, tree_head TO {WRITER}",
        f"GRANT SELECT, INSERT, UPDATE ON cosigned TO {WRITER}",
        f"GRANT SELECT ON tree_tile, tree_head, cosigned TO {READER}, {TRIMMER}",
        f"GRANT DELETE ON tree_head TO {TRIMMER}",
        "CREATE FUNCTION joulie_only_grows_tree_head() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN IF TG_OP = 'DELETE' AND {_BEHIND} THEN RETURN OLD; END IF; "
        "RAISE EXCEPTION 'the table % only grows', TG_TABLE_NAME; END $$",
    ]
    for table in KEYS:
        refuse = "joulie_only_grows" + ("_tree_head" if table == "tree_head" else "")
        made += [
            f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION {refuse}()",
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION joulie_only_grows()",
        ]
    return made
