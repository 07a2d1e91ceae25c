"""Alembic's environment: always on the connection that `roost.store.schema` hands over."""

from alembic import context

from roost.store.tables import metadata


def _ours(name: str | None, kind: str, parents: object) -> bool:
    """The queue's tables are procrastinate's own business."""
    return not (kind == "table" and (name or "").startswith("procrastinate_"))


connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=True, include_name=_ours)
with context.begin_transaction():
    context.run_migrations()
