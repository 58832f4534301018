"""A Merkle tree over the entries of the log: its tiles, its signed checkpoints, cosignatures.

The projector fills the tree of an existing log in steps, before its next checkpoint.

Revision ID: 0010
"""

import sqlalchemy as sa
from alembic import op

from joulie_migrations import tree_tables

revision = "0010"
down_revision = "0009"
phase = "pre"


def upgrade() -> None:
    op.create_table(
        "tree_tile",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("root", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "tree_head",
        sa.Column("pos", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("base", sa.BigInteger, nullable=False),
        sa.Column("edge", sa.LargeBinary, nullable=False),
        sa.Column("note", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "cosigned",
        sa.Column("witness", sa.Text, primary_key=True),
        sa.Column("note", sa.LargeBinary, nullable=False),
    )
    for statement in tree_tables.statements(op.get_bind().dialect.name):
        op.execute(sa.text(statement))
