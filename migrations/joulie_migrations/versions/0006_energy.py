"""The ledger of energy: its intervals, and the state of its fold.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op

from joulie_migrations.guards import READER, WRITER

revision = "0006"
down_revision = "0005"
phase = "pre"


def upgrade() -> None:
    op.create_table(
        "energy",
        sa.Column("grain", sa.Text, primary_key=True),
        sa.Column("start_ms", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "energy_state",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        for table in ("energy", "energy_state"):
            op.execute(sa.text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {WRITER}"))
            op.execute(sa.text(f"GRANT SELECT ON {table} TO {READER}"))
