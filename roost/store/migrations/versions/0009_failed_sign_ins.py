"""Failed sign-ins: how many there were for whom, and until when they count."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "failed_sign_ins",
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_failed_sign_ins"),
    )
    op.create_index("ix_failed_sign_ins_ends_at", "failed_sign_ins", ["ends_at"])
