"""Store the subject of quarantined messages, and allow one row for many messages of a commit.

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
phase = "pre"


def upgrade() -> None:
    nothing = "''" if op.get_bind().dialect.name == "postgresql" else "x''"
    for column in (
        sa.Column("subject", sa.Text, nullable=False, server_default=""),
        sa.Column("rest", sa.LargeBinary, nullable=False, server_default=sa.text(nothing)),
    ):
        op.add_column("quarantine", column)
