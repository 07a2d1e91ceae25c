"""What was brought from Senlin is known for ever, so that it never comes twice."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "imports",
        sa.Column("noun", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("noun", "id", name=op.f("pk_imports")),
    )
