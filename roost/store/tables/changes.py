"""Numbered changes: rows that each process reads to learn what others did, in place of notifications (`store.feed`)."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from roost.store.tables.base import metadata

# What claims did to hosts and groups: {"rooms": [[host, version, used...]], "joined": [[group, version, ...]]}.
claim_changes = sa.Table(
    "claim_changes",
    metadata,
    sa.Column("number", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("body", JSONB, nullable=False),
)

# What people may be watching: written by triggers.
watch_changes = sa.Table(
    "watch_changes",
    metadata,
    sa.Column("number", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("ids", sa.Text, nullable=False),
)
