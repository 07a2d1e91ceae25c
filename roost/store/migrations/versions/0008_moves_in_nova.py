"""Moves in a Nova: the request under which it moves a server."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Apply."""
    op.add_column("repair_moves", sa.Column("request_id", sa.Text(), nullable=True))
