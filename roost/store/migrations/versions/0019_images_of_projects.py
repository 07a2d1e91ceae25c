"""Images of projects: owners, visibility, members, tags, properties, and data."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Apply."""
    for column in (
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), server_default="active", nullable=False),
        sa.Column("visibility", sa.Text(), server_default="public", nullable=False),
        sa.Column("container_format", sa.Text(), server_default="bare", nullable=True),
        sa.Column("disk_format", sa.Text(), server_default="qcow2", nullable=True),
        sa.Column("protected", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("hidden", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("properties", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("checksum", sa.Text(), nullable=True),
        sa.Column("sha512", sa.Text(), nullable=True),
        sa.Column("stored", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
    ):
        op.add_column("images", column)
    op.create_table(
        "image_members",
        sa.Column("image_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("member_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["image_id"], ["images.id"], name=op.f("fk_image_members_image_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("image_id", "member_id", name=op.f("pk_image_members")),
    )
    op.create_index(op.f("ix_image_members_member_id"), "image_members", ["member_id"])
