"""Volumes; those of a server are given back, or deleted, with it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0027"
down_revision = "0026"

# A volume with snapshots stays, as in Cinder.
DETACH = """
    CREATE FUNCTION detach_volumes() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM volumes WHERE delete_on_termination AND server_id IN (SELECT id FROM gone)
            AND NOT EXISTS (SELECT FROM volume_snapshots WHERE volume_id = volumes.id);
        UPDATE volumes SET server_id = NULL, device = NULL, attachment_id = NULL, attached_at = NULL, tag = NULL,
            delete_on_termination = false, root = false, of_server = false, updated_at = now()
            WHERE server_id IN (SELECT id FROM gone);
        RETURN NULL;
    END $$
"""


def _described() -> tuple[sa.Column[object], ...]:
    return (
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("bootable", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("image_metadata", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
    )


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "volume_types",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("is_public", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("extra_specs", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_volume_types")),
        sa.UniqueConstraint("name", name=op.f("uq_volume_types_name")),
    )
    op.create_table(
        "volume_type_projects",
        sa.Column("volume_type_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["volume_type_id"],
            ["volume_types.id"],
            name=op.f("fk_volume_type_projects_volume_type_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("volume_type_id", "project_id", name=op.f("pk_volume_type_projects")),
    )
    op.create_table(
        "volumes",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        *_described(),
        sa.Column("volume_type_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("snapshot_id", sa.UUID(as_uuid=False), nullable=True),
        sa.Column("source_volid", sa.UUID(as_uuid=False), nullable=True),
        sa.Column("server_id", sa.UUID(as_uuid=False), nullable=True),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("attachment_id", sa.UUID(as_uuid=False), nullable=True),
        sa.Column("attached_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("tag", sa.Text(), nullable=True),
        sa.Column("delete_on_termination", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("root", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("of_server", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.ForeignKeyConstraint(["volume_type_id"], ["volume_types.id"], name=op.f("fk_volumes_volume_type_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_volumes")),
        sa.UniqueConstraint("server_id", "device", name=op.f("uq_volumes_server_id_device")),
    )
    op.create_index(op.f("ix_volumes_project_id"), "volumes", ["project_id"])
    op.create_index(op.f("ix_volumes_server_id"), "volumes", ["server_id"])
    op.create_table(
        "volume_snapshots",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("volume_id", sa.UUID(as_uuid=False), nullable=False),
        *_described(),
        sa.ForeignKeyConstraint(["volume_id"], ["volumes.id"], name=op.f("fk_volume_snapshots_volume_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_volume_snapshots")),
    )
    op.create_index(op.f("ix_volume_snapshots_project_id"), "volume_snapshots", ["project_id"])
    op.create_index(op.f("ix_volume_snapshots_volume_id"), "volume_snapshots", ["volume_id"])
    op.execute("INSERT INTO volume_types (name, description) VALUES ('__DEFAULT__', 'Default Volume Type')")
    op.execute(DETACH)
    op.execute(
        """CREATE TRIGGER detach_volumes AFTER DELETE ON servers REFERENCING OLD TABLE AS gone
           FOR EACH STATEMENT EXECUTE FUNCTION detach_volumes()"""
    )
