"""Rows of the logs that their writer did not write, which it moves into a table of their own.

Any program with the right to insert can add a row behind the newest entry or manifest, or a head
that no key signed.
The writer knows what it wrote. It may not delete: it copies such rows into `foreign_row`, and the
guards let those go that lie behind the newest head and have a copy there. On PostgreSQL only
functions of the owner move rows, so the writer has no right to delete.
"""

from joulie_migrations.guards import READER, WRITER

TABLE = "foreign_row"
KEY = ("table_name", "pos", "found_at", "hash")  # several heads may have one position
_INTO = f"INSERT INTO {TABLE} (table_name, pos, found_at, event_id, body, hash)"
_SIGNED_TO = "coalesce((SELECT max(pos) FROM head), 0)"
_FACTS_SIGNED_TO = "coalesce((SELECT max(p_to) FROM head), 0)"
_CUT_AT = "coalesce((SELECT max(pos) FROM cut), 0)"


def _has_copy(table: str, pos: str, body: str, digest: str) -> str:
    return (
        f"EXISTS (SELECT 1 FROM {TABLE} AS f WHERE f.table_name = '{table}' "
        f"AND f.pos = OLD.{pos} AND f.body = OLD.{body} AND f.hash = OLD.{digest})"
    )


# Of a trimmed log, a row before the cut may be one that the trim left, or one that was added.
IS_FOREIGN = {
    "decision": f"{_has_copy('decision', 'pos', 'body', 'hash')} "
    f"AND (OLD.pos > {_SIGNED_TO} OR OLD.pos < {_CUT_AT})",
    "head": _has_copy("head", "pos", "note", "id"),
    "batch": f"{_has_copy('batch', 'p_to', 'ranges', 'head')} AND OLD.p_to > {_FACTS_SIGNED_TO}",
}


class Move:
    """The statements that move rows; `{where}` chooses them."""

    def __init__(self, table: str, columns: str, where: str) -> None:
        copied = f"SELECT '{table}', {columns} FROM {table} WHERE {where}"
        self.copy = f"{_INTO} {copied}"
        self.delete = f"DELETE FROM {table} WHERE {where}"


def decisions(after: str, others: str, now: str) -> Move:
    """Entries after one, and others by their positions."""
    return Move("decision", f"pos, {now}, event_id, body, hash", f"pos > {after} OR pos {others}")


def heads(ids: str, now: str) -> Move:
    return Move("head", f"pos, {now}, '', note, id", f"id {ids}")


def manifests(after: str, now: str) -> Move:
    """Those behind a position."""
    return Move("batch", f"p_to, {now}, '', ranges, head", f"p_to > {after}")


def statements(dialect: str) -> list[str]:
    return _on_postgres() if dialect == "postgresql" else _on_sqlite()


def _on_sqlite() -> list[str]:
    refuse = f"BEGIN SELECT RAISE(ABORT, 'the table {TABLE} only grows'); END"
    key = " AND ".join(f"{each} = NEW.{each}" for each in KEY)
    return [
        f"CREATE TRIGGER {TABLE}_no_update BEFORE UPDATE ON {TABLE} {refuse}",
        f"CREATE TRIGGER {TABLE}_no_delete BEFORE DELETE ON {TABLE} {refuse}",
        f"CREATE TRIGGER {TABLE}_no_replace BEFORE INSERT ON {TABLE} WHEN EXISTS "
        f"(SELECT 1 FROM {TABLE} WHERE ({key}) OR rowid = NEW.rowid) {refuse}",
    ]


def _on_postgres() -> list[str]:
    moved_entries = decisions("p_after", "= ANY(p_others)", "p_now")
    moved_heads = heads("= ANY(p_ids)", "p_now")
    return [
        f"GRANT SELECT ON {TABLE} TO {WRITER}, {READER}",
        f"CREATE TRIGGER {TABLE}_no_change BEFORE UPDATE OR DELETE ON {TABLE} "
        "FOR EACH ROW EXECUTE FUNCTION joulie_only_grows()",
        f"CREATE TRIGGER {TABLE}_no_truncate BEFORE TRUNCATE ON {TABLE} "
        "FOR EACH STATEMENT EXECUTE FUNCTION joulie_only_grows()",
        *_function("joulie_move_decisions", "p_after bigint, p_others bigint[]", moved_entries),
        *_function("joulie_move_heads", "p_ids bytea[]", moved_heads),
        *_function("joulie_move_manifests", "p_after bigint", manifests("p_after", "p_now")),
    ]


def _function(name: str, arguments: str, move: Move) -> list[str]:
    """With the rights of the owner of the tables."""
    kinds = ", ".join(each.split()[1] for each in arguments.split(", "))
    return [
        f"CREATE FUNCTION {name}({arguments}, p_now bigint) RETURNS bigint LANGUAGE plpgsql "
        "SECURITY DEFINER SET search_path = public, pg_temp AS $$ "
        f"DECLARE moved bigint; BEGIN {move.copy}; {move.delete}; "
        "GET DIAGNOSTICS moved = ROW_COUNT; RETURN moved; END $$",
        f"REVOKE ALL ON FUNCTION {name}({kinds}, bigint) FROM PUBLIC",
        f"GRANT EXECUTE ON FUNCTION {name}({kinds}, bigint) TO {WRITER}",
    ]
