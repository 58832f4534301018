"""Until which moment the rows include everything that the broker had stored.

A reader that does not reach the broker learns from it how far its rows are behind.

Revision ID: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
phase = "pre"


def upgrade() -> None:
    column = sa.Column("complete_at", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("checkpoint", column)
