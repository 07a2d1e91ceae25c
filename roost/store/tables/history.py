"""What happened: events that outlive the servers and hosts they describe, and figures taken every minute."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import UUID

from roost.store.tables.base import metadata

# Written by triggers, in the transaction that makes the change. Placements are in `instance_actions`.
happenings = sa.Table(
    "happenings",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
    sa.Column("kind", sa.Text, nullable=False),
    # Null for what happens to hosts, which only operators see.
    sa.Column("project_id", sa.Text),
    sa.Column("server_id", UUID(as_uuid=False)),
    sa.Column("server_name", sa.Text),
    sa.Column("group_id", UUID(as_uuid=False)),
    sa.Column("host", sa.Text),
    sa.Column("source", sa.Text),
    sa.Column("detail", sa.Text),
    sa.Index("ix_happenings_at", "at"),
    sa.Index("ix_happenings_project_id", "project_id", "at"),
    sa.Index("ix_happenings_group_id", "group_id", "at", postgresql_where="group_id IS NOT NULL"),
    sa.Index("ix_happenings_host", "host", "at", postgresql_where="host IS NOT NULL"),
    sa.Index("ix_happenings_source", "source", "at", postgresql_where="source IS NOT NULL"),
    sa.Index("ix_happenings_server_id", "server_id", "at", postgresql_where="server_id IS NOT NULL"),
)

samples = sa.Table(
    "samples",
    metadata,
    sa.Column("at", sa.DateTime(timezone=True), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Float, nullable=False),
)
