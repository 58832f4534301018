"""The names of rows by position: decisions name nodes by rows, which are reused.

The projector fills the table when it starts: only it knows that no older version still commits.

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic import op

from joulie_migrations.cuts import TRIMMER
from joulie_migrations.guards import READER, WRITER

revision = "0007"
down_revision = "0006"
phase = "pre"


def upgrade() -> None:
    op.create_table(
        "row_name",
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
    )
    op.create_index("row_name_by_row", "row_name", ["ordinal", "position"])
    op.add_column(
        "checkpoint", sa.Column("named_epoch", sa.BigInteger, nullable=False, server_default="0")
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(sa.text(f"GRANT SELECT, INSERT, UPDATE ON row_name TO {WRITER}"))
        op.execute(sa.text(f"GRANT SELECT ON row_name TO {READER}, {TRIMMER}"))
