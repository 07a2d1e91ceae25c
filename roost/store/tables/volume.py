"""Volumes, their snapshots and their types.

A volume is attached to one server at most, and a server has one volume under a device name. What becomes of the volumes
of a deleted server is up to a trigger on `servers`.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, UUID

from roost.store.tables.base import created_at, metadata, updated_at


def _id() -> sa.Column[Any]:
    return sa.Column("id", UUID(as_uuid=False), primary_key=True, server_default=sa.func.gen_random_uuid())


def _described() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("project_id", sa.Text, nullable=False, index=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False, server_default=""),
        sa.Column("description", sa.Text),
        sa.Column("metadata", JSONB, nullable=False, server_default="{}"),
        created_at(),
        updated_at(),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("bootable", sa.Boolean, nullable=False, server_default=sa.false()),
        # What the image said that the data came from.
        sa.Column("image_metadata", JSONB),
    )


volume_types = sa.Table(
    "volume_types",
    metadata,
    _id(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("description", sa.Text),
    sa.Column("is_public", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("extra_specs", JSONB, nullable=False, server_default="{}"),
    created_at(),
)

volume_type_projects = sa.Table(
    "volume_type_projects",
    metadata,
    sa.Column("volume_type_id", sa.ForeignKey(volume_types.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("project_id", sa.Text, primary_key=True),
)

volumes = sa.Table(
    "volumes",
    metadata,
    _id(),
    *_described(),
    sa.Column("volume_type_id", sa.ForeignKey(volume_types.c.id), nullable=False),
    sa.Column("snapshot_id", UUID(as_uuid=False)),
    sa.Column("source_volid", UUID(as_uuid=False)),
    # Of a server that is there, or is about to be.
    sa.Column("server_id", UUID(as_uuid=False), index=True),
    sa.Column("device", sa.Text),
    sa.Column("attachment_id", UUID(as_uuid=False)),
    sa.Column("attached_at", sa.DateTime(timezone=True)),
    sa.Column("tag", sa.Text),
    sa.Column("delete_on_termination", sa.Boolean, nullable=False, server_default=sa.false()),
    # The server boots from it.
    sa.Column("root", sa.Boolean, nullable=False, server_default=sa.false()),
    # Made for the server, and gone if that does not come to be.
    sa.Column("of_server", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.UniqueConstraint("server_id", "device"),
)

volume_snapshots = sa.Table(
    "volume_snapshots",
    metadata,
    _id(),
    sa.Column("volume_id", sa.ForeignKey(volumes.c.id), nullable=False, index=True),
    *_described(),
)
