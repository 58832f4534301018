"""Create the tables of positions, states and decisions.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

from joulie_migrations import guards

revision = "0001"
down_revision = None
phase = "pre"

_STATES = ("node_twin", "pod", "gpu", "facility", "producer", "cluster_state")


def upgrade() -> None:
    _states()
    _positions()
    _asides()
    _decisions()
    dialect = op.get_bind().dialect.name
    for statement in guards.statements(dialect):
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
    op.execute(sa.text("INSERT INTO schema_floor (oldest) VALUES ('0001')"))


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
