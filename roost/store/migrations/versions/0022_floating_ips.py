"""Floating addresses."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "floating_ips",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("floating_network_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("floating_ip_address", sa.Text(), nullable=False),
        sa.Column("port_id", sa.UUID(as_uuid=False), nullable=True),
        sa.Column("fixed_ip_address", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["floating_network_id"], ["networks.id"], name=op.f("fk_floating_ips_floating_network_id")
        ),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name=op.f("fk_floating_ips_port_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_floating_ips")),
        sa.UniqueConstraint("port_id", "fixed_ip_address", name=op.f("uq_floating_ips_port_id_fixed_ip_address")),
    )
    op.create_index(op.f("ix_floating_ips_project_id"), "floating_ips", ["project_id"])
