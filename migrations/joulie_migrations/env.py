"""Alembic's entry: it runs on the connection that `upgrade` hands in, in one transaction."""

from alembic import context
from sqlalchemy import text

TURN = 7_046_029_254_386_353_131  # any number; whoever migrates takes turns by it
connection = context.config.attributes["connection"]
if connection.dialect.name == "postgresql":
    connection.execute(text(f"SELECT pg_advisory_xact_lock({TURN})"))
context.configure(connection=connection, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
