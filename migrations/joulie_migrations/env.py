"""The environment of Alembic: runs on the connection that `upgrade` passes, in one transaction."""

from alembic import context
from sqlalchemy import text

MIGRATION_LOCK = 7_046_029_254_386_353_131  # an arbitrary key that serializes migrations
connection = context.config.attributes["connection"]
if connection.dialect.name == "postgresql":
    connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
context.configure(connection=connection, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
