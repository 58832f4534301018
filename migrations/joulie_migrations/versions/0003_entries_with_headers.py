"""An entry of the decision log begins with a header: what it is found by, hashed with the rest.

SQLite makes its columns of it and keeps them nowhere else. The table is written anew, which takes
the room of the log once more while it lasts. What was logged before keeps its body and its hash.
Code of schema 0002 cannot read what is logged from now on: it is stopped before.

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
