"""Add an index of decisions by time.

While PostgreSQL builds the index, no entry can be appended: some seconds for millions of entries,
during which new ones wait in their stream.

Revision ID: 0002
"""

from alembic import op

revision = "0002"
down_revision = "0001"
phase = "pre"


def upgrade() -> None:
    op.create_index("decision_by_time", "decision", ["decided_at", "pos"])
