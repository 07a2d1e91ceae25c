"""Places of plans that failed, so that servers which Nova makes for them all the same are found and deleted."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    """Apply."""
    op.add_column(
        "planned_places", sa.Column("given_up", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
