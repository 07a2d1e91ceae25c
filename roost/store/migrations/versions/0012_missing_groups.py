"""Groups that a Nova does not list any more are marked, and not deleted at once."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Apply."""
    op.add_column("server_groups", sa.Column("missing_since", sa.DateTime(timezone=True)))
