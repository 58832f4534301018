"""The first schema: the tables, and the triggers and grants that guard them.

The numbers below were schemas of versions before the first format, whose logs are not continued.

Revision ID: 0011
"""

import sqlalchemy as sa
from alembic import op

from joulie_migrations import cuts, decision_table, foreign_rows, guards, ledger_tables, tree_tables

revision = "0011"
down_revision = None
phase = "pre"

_STATES = ("node_twin", "pod", "gpu", "facility", "producer", "cluster_state")


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    _states()
    _positions()
    _facts()
    _asides()
    _decisions(dialect)
    _heads()
    _cuts()
    for guard in (guards, foreign_rows, cuts, ledger_tables, tree_tables):
        for statement in guard.statements(dialect):
            op.execute(sa.text(statement))


def _states() -> None:
    for table in _STATES:
        op.create_table(
            table,
            sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("key", sa.Text, primary_key=True),
            sa.Column("position", sa.BigInteger, nullable=False),
            sa.Column("body", sa.LargeBinary, nullable=False),
        )
        op.create_index(f"{table}_by_position", table, ["generation", "position"])
    op.create_table(
        "gone",
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("table_name", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
    )
    op.create_index("gone_by_position", "gone", ["generation", "position"])


def _positions() -> None:
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
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("complete_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("timeline", sa.Text, nullable=False, server_default=""),
    )
    op.create_table(
        "row_name",
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
    )
    op.create_index("row_name_by_row", "row_name", ["ordinal", "position"])


def _facts() -> None:
    op.create_table(
        "batch",
        sa.Column("p_from", sa.BigInteger, nullable=False),
        sa.Column("p_to", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("ranges", sa.LargeBinary, nullable=False),
        sa.Column("facts_hash", sa.LargeBinary, nullable=False),
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
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("rest", sa.LargeBinary, nullable=False),
    )


def _asides() -> None:
    op.create_table(
        "outcome_due",
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("pod_uid", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
    )
    op.create_table(
        "snapshot",
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("fold_version", sa.Text, nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "rebuilt",
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("fold_version", sa.Text, nullable=False),
        sa.Column("state_digest", sa.LargeBinary, nullable=False),
        sa.Column("flipped_at", sa.BigInteger, nullable=False),
    )
    op.create_table("schema_floor", sa.Column("oldest", sa.Text, primary_key=True))
    op.execute(sa.text("INSERT INTO schema_floor (oldest) VALUES ('0011')"))


def _decisions(dialect: str) -> None:
    if dialect == "sqlite":
        op.execute(sa.text(decision_table.TABLE))
    else:
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
    for index, columns in decision_table.INDEXES.items():
        op.execute(sa.text(f"CREATE INDEX {index} ON {columns}"))


def _heads() -> None:
    op.create_table(
        "head",
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("pos", sa.BigInteger, nullable=False),
        sa.Column("p_to", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("note", sa.LargeBinary, nullable=False),
        sa.Column("quota", sa.LargeBinary, nullable=False),
    )
    op.create_index("head_by_pos", "head", ["pos"])
    op.create_table(
        "foreign_row",
        sa.Column("table_name", sa.Text, primary_key=True),
        sa.Column("pos", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("found_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary, primary_key=True),
    )
    op.create_table(
        "tree_tile",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("root", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "cosigned",
        sa.Column("witness", sa.Text, primary_key=True),
        sa.Column("note", sa.LargeBinary, nullable=False),
    )


def _cuts() -> None:
    op.create_table(
        "cut",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("pos", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("p_to", sa.BigInteger, nullable=False),
        sa.Column("manifest_head", sa.LargeBinary, nullable=False),
        sa.Column("log_seal", sa.Text, nullable=False),
        sa.Column("facts_seal", sa.Text, nullable=False),
        sa.Column("inputs", sa.LargeBinary, nullable=False),
        sa.Column("note", sa.LargeBinary, nullable=False),
        sa.Column("edge", sa.LargeBinary, nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
    )
