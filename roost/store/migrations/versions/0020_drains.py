"""Drains: repairs of no group, which move all servers out of a place; and moves that can be paused."""

import sqlalchemy as sa
from alembic import op

from roost.store import online

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Apply."""
    op.alter_column("repairs", "group_id", nullable=True)
    op.add_column("repairs", sa.Column("scope", sa.Text(), nullable=True))
    op.add_column("repairs", sa.Column("identifier", sa.Text(), nullable=True))
    op.add_column("repairs", sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False))
    online.create_index("ix_repairs_drains", "repairs", "number", "group_id IS NULL")
