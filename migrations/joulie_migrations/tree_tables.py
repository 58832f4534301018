"""The triggers and grants of the Merkle tree's table.

A tile that a head signs stays; the writer may replace another one, which it did not write.
"""

from joulie_migrations.cuts import TRIMMER
from joulie_migrations.guards import READER, WRITER

TILE = 256  # entries
_IS_SIGNED = f"(number + 1) * {TILE} <= coalesce((SELECT max(pos) FROM head), 0)"
_OLD_IS_SIGNED = _IS_SIGNED.replace("number", "OLD.number")


def statements(dialect: str) -> list[str]:
    return _on_postgres() if dialect == "postgresql" else _on_sqlite()


def _on_sqlite() -> list[str]:
    refuse = "BEGIN SELECT RAISE(ABORT, 'the table tree_tile only grows'); END"
    known = "number = NEW.number OR rowid = NEW.rowid"
    return [
        f"CREATE TRIGGER tree_tile_no_update BEFORE UPDATE ON tree_tile WHEN {_OLD_IS_SIGNED} "
        f"{refuse}",
        f"CREATE TRIGGER tree_tile_no_delete BEFORE DELETE ON tree_tile {refuse}",
        "CREATE TRIGGER tree_tile_no_replace BEFORE INSERT ON tree_tile WHEN EXISTS "
        f"(SELECT 1 FROM tree_tile WHERE ({known}) AND {_IS_SIGNED}) {refuse}",
    ]


def _on_postgres() -> list[str]:
    return [
        f"GRANT SELECT, INSERT, UPDATE ON tree_tile, cosigned TO {WRITER}",
        f"GRANT SELECT ON tree_tile, cosigned TO {READER}, {TRIMMER}",
        "CREATE FUNCTION joulie_only_grows_tree_tile() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN IF TG_OP = 'UPDATE' AND NOT ({_OLD_IS_SIGNED}) THEN RETURN NEW; END IF; "
        "RAISE EXCEPTION 'the table tree_tile only grows'; END $$",
        "CREATE TRIGGER tree_tile_no_change BEFORE UPDATE OR DELETE ON tree_tile "
        "FOR EACH ROW EXECUTE FUNCTION joulie_only_grows_tree_tile()",
        "CREATE TRIGGER tree_tile_no_truncate BEFORE TRUNCATE ON tree_tile "
        "FOR EACH STATEMENT EXECUTE FUNCTION joulie_only_grows()",
    ]
