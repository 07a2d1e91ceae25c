"""Places of applied plans, held for servers that a nova-scheduler is still to place."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "planned_places",
        sa.Column("token", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("group_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("host_id", sa.Integer(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=True),
        sa.Column("server_id", sa.UUID(as_uuid=False), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"], ["server_groups.id"], name=op.f("fk_planned_places_group_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_planned_places_host_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("token", name=op.f("pk_planned_places")),
    )
    op.create_index(op.f("ix_planned_places_group_id"), "planned_places", ["group_id"])
    op.create_index(op.f("ix_planned_places_host_id"), "planned_places", ["host_id"])
