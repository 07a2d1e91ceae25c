"""Routers."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "routers",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("admin_state_up", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("gateway_network_id", sa.UUID(as_uuid=False), nullable=True),
        sa.Column("enable_snat", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("routes", postgresql.JSONB(astext_type=sa.Text()), server_default="[]", nullable=False),
        sa.ForeignKeyConstraint(["gateway_network_id"], ["networks.id"], name=op.f("fk_routers_gateway_network_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_routers")),
    )
    op.create_index(op.f("ix_routers_project_id"), "routers", ["project_id"])
