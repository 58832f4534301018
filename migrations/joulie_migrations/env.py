"""Alembic's entry: it runs on the connection that `upgrade` hands in, in one transaction."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
