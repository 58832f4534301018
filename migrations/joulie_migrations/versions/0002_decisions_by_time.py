"""Entries of a span of time are found without going back through the whole log.

While the index is made PostgreSQL lets nobody append to the log: some seconds for millions of
entries, in which they wait in their stream.

Revision ID: 0002
"""

from alembic import op

revision = "0002"
down_revision = "0001"
phase = "pre"


def upgrade() -> None:
    op.create_index("decision_by_time", "decision", ["decided_at", "pos"])
