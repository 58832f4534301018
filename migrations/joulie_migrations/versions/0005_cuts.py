"""Allow to trim the logs after they are archived: a table of cuts, and triggers that use it.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

from joulie_migrations import cuts

revision = "0005"
down_revision = "0004"
phase = "pre"


def upgrade() -> None:
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
        sa.Column("signed_at", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
    )
    for statement in cuts.statements(op.get_bind().dialect.name):
        op.execute(sa.text(statement))
