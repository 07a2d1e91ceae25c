"""Alembic's environment: always on the connection that `roost.store.schema` hands over."""

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo

from roost.store.tables import metadata


def _ours(name: str | None, kind: str, parents: object) -> bool:
    """The queue's tables belong to procrastinate."""
    return not (kind == "table" and (name or "").startswith("procrastinate_"))


def _remember(ctx: MigrationContext, step: MigrationInfo, heads: Collection[Any], run_args: Mapping[str, Any]) -> None:
    """Let programs know whether what a migration removed is something that they use; say how far it has come."""
    context.config.attributes["tell"](step.up_revision_id)
    oldest = getattr(getattr(step.up_revision, "module", None), "unused_since", None)
    if oldest is not None and ctx.connection is not None:
        ctx.connection.execute(sa.text(f"COMMENT ON TABLE alembic_version IS '{oldest}'"))


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    transaction_per_migration=True,
    include_name=_ours,
    on_version_apply=_remember,
)
with context.begin_transaction():
    context.run_migrations()
