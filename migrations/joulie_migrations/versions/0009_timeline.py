"""The timeline of the PostgreSQL server, by which a projector notices a failover.

Revision ID: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
phase = "pre"


def upgrade() -> None:
    op.add_column("checkpoint", sa.Column("timeline", sa.Text, nullable=False, server_default=""))
