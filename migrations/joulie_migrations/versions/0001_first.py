"""Positions, states, and a decision log that only grows.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_STATES = ("node_twin", "pod", "gpu", "facility", "producer", "cluster_state")
_GUARDED = ("decision", "batch", "head")


def upgrade() -> None:
    _positions()
    _decisions()
    for table in _GUARDED:
        _only_grows(table)


def _positions() -> None:
    for table in _STATES:
        op.create_table(
            table,
            sa.Column("key", sa.Text, primary_key=True),
            sa.Column("position", sa.BigInteger, nullable=False),
            sa.Column("body", sa.LargeBinary, nullable=False),
        )
        op.create_index(f"{table}_by_position", table, ["position"])
    op.create_table(
        "gone",
        sa.Column("table_name", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
    )
    op.create_index("gone_by_position", "gone", ["position"])
    op.create_table(
        "checkpoint",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("inputs", sa.LargeBinary, nullable=False),
        sa.Column("digests", sa.LargeBinary, nullable=False),
        sa.Column("head", sa.LargeBinary, nullable=False),
        sa.Column("incarnation", sa.Text, nullable=False),
    )
    op.create_table(
        "batch",
        sa.Column("p_from", sa.BigInteger, nullable=False),
        sa.Column("p_to", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("ranges", sa.LargeBinary, nullable=False),
        sa.Column("merkle_root", sa.LargeBinary, nullable=False),
        sa.Column("state_digest", sa.LargeBinary, nullable=False),
        sa.Column("prev", sa.LargeBinary, nullable=False),
        sa.Column("head", sa.LargeBinary, nullable=False),
        sa.Column("fold_version", sa.Text, nullable=False),
        sa.Column("committed_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "quarantine",
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def _decisions() -> None:
    op.create_table(
        "decision",
        sa.Column("pos", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("event_id", sa.Text, nullable=False, unique=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("pod_uid", sa.Text, nullable=False),
        sa.Column("pod", sa.Text, nullable=False),
        sa.Column("view_position", sa.BigInteger, nullable=False),
        sa.Column("decided_at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("prev", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
    )
    op.create_index("decision_by_pod_uid", "decision", ["pod_uid"])
    op.create_index("decision_by_pod", "decision", ["pod"])
    op.create_index("decision_by_view", "decision", ["view_position"])
    op.create_table(
        "head",
        sa.Column("pos", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("signed_at", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
    )


def _only_grows(table: str) -> None:
    """Triggers are one layer; the chain shows what gets past them (docs/decisions/0004)."""
    key = "p_to" if table == "batch" else "pos"
    refuse = f"SELECT RAISE(ABORT, 'the table {table} only grows')"
    op.execute(f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} BEGIN {refuse}; END")
    op.execute(f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} BEGIN {refuse}; END")
    # REPLACE deletes without asking the delete trigger: an existing key is refused on its way in.
    # SQLite's own key, the rowid, counts too: whoever names one replaces by it.
    keys = [key, "rowid", "event_id"] if table == "decision" else [key, "rowid"]
    exists = " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE {k} = NEW.{k})" for k in keys)
    op.execute(
        f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {exists} "
        f"BEGIN {refuse}; END"
    )
    if table == "decision":
        op.execute(
            "CREATE TRIGGER decision_chained BEFORE INSERT ON decision WHEN NOT ("
            "  (NEW.pos = 1 AND NOT EXISTS (SELECT 1 FROM decision)) OR EXISTS ("
            "    SELECT 1 FROM decision WHERE pos = NEW.pos - 1 AND hash = NEW.prev)) "
            "BEGIN SELECT RAISE(ABORT, 'the decision log has no such place'); END"
        )
