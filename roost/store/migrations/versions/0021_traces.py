"""An action belongs to the trace of the request that asked for it."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Apply."""
    op.add_column("actions", sa.Column("trace", sa.Text()))
