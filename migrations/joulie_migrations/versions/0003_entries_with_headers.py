"""Begin each entry of the decision log with a header: its indexed fields, hashed with the message.

SQLite generates the other columns from the header. The table is rewritten, which temporarily takes
the space of the log once more. Existing entries keep their bodies and hashes. Code of schema 0002
cannot read new entries, and has to be stopped before.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

from joulie_migrations import decision_table, guards

revision = "0003"
down_revision = "0002"
phase = "post"


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        return
    for statement in (
        *(f"DROP INDEX {index}" for index in decision_table.INDEXES),
        "ALTER TABLE decision RENAME TO decision_before",
        decision_table.TABLE,
        decision_table.COPY,
        "DROP TABLE decision_before",
        *(
            f"CREATE INDEX {index} ON {columns}"
            for index, columns in decision_table.INDEXES.items()
        ),
        *guards.of_decisions_on_sqlite(),
    ):
        op.execute(sa.text(statement))
