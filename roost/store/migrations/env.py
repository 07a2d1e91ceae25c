"""Alembic's environment: always on the connection that `roost.store.schema` hands over."""

from alembic import context

from roost.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=True)
with context.begin_transaction():
    context.run_migrations()
