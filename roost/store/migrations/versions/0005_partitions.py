"""Partitions: the number that a server has in a group that is divided."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Apply."""
    op.add_column("servers", sa.Column("partition", sa.Integer(), nullable=True))
    op.create_check_constraint(op.f("ck_servers_partition"), "servers", "partition > 0")
