"""Partitions: the number that a server has in a group that is divided."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Apply."""
    op.add_column("servers", sa.Column("partition", sa.Integer(), nullable=True))
