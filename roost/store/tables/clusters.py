"""Clusters, their nodes and what governs them; the actions that change them, and what is known of the engines."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from roost.store.tables.base import created_at, metadata, updated_at

UNFINISHED = ("INIT", "READY", "RUNNING", "WAITING", "WAITING_LIFECYCLE_COMPLETION", "SUSPENDED")
"""The statuses of actions that still hold, or wait for, what they work on."""

_unfinished = sa.text("status IN (" + ", ".join(f"'{status}'" for status in UNFINISHED) + ")")


def _id() -> sa.Column[Any]:
    return sa.Column("id", sa.Text, primary_key=True)


def _owner() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("project_id", sa.Text, nullable=False),
        sa.Column("domain_id", sa.Text, nullable=False, server_default="default"),
    )


def _json(name: str) -> sa.Column[Any]:
    return sa.Column(name, JSONB, nullable=False, server_default="{}")


def _short_ids(table: str) -> sa.Index:
    """Lets the beginning of an id find its row, whatever the database's collation."""
    return sa.Index(f"ix_{table}_id_prefix", "id", postgresql_ops={"id": "text_pattern_ops"})


profiles = sa.Table(
    "profiles",
    metadata,
    _id(),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    _json("spec"),
    _json("metadata"),
    *_owner(),
    created_at(),
    updated_at(),
    sa.Index(None, "project_id", "name"),
    _short_ids("profiles"),
)

policies = sa.Table(
    "policies",
    metadata,
    _id(),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    _json("spec"),
    _json("data"),
    *_owner(),
    created_at(),
    updated_at(),
    sa.Index(None, "project_id", "name"),
    _short_ids("policies"),
)

clusters = sa.Table(
    "clusters",
    metadata,
    _id(),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("profile_id", sa.ForeignKey(profiles.c.id), nullable=False, index=True),
    sa.Column("min_size", sa.Integer, nullable=False, server_default="0"),
    sa.Column("max_size", sa.Integer, nullable=False, server_default="-1"),
    sa.Column("desired_capacity", sa.Integer, nullable=False, server_default="0"),
    sa.Column("next_index", sa.Integer, nullable=False, server_default="1"),
    sa.Column("timeout", sa.Integer, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("status_reason", sa.Text, nullable=False, server_default=""),
    _json("metadata"),
    _json("data"),
    _json("dependents"),
    _json("config"),
    sa.Column("init_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("created_at", sa.DateTime(timezone=True)),
    updated_at(),
    *_owner(),
    sa.Index(None, "project_id", "name"),
    sa.Index(None, "project_id", "init_at", "id"),
    _short_ids("clusters"),
)

nodes = sa.Table(
    "nodes",
    metadata,
    _id(),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("profile_id", sa.ForeignKey(profiles.c.id), nullable=False, index=True),
    # Null for an orphan, which the API shows as ''.
    sa.Column("cluster_id", sa.ForeignKey(clusters.c.id)),
    sa.Column("physical_id", sa.Text),
    sa.Column("index", sa.Integer, nullable=False, server_default="-1"),
    sa.Column("role", sa.Text, nullable=False, server_default=""),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("status_reason", sa.Text, nullable=False, server_default=""),
    _json("metadata"),
    _json("data"),
    _json("dependents"),
    sa.Column("tainted", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("init_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("created_at", sa.DateTime(timezone=True)),
    updated_at(),
    *_owner(),
    sa.Index(None, "cluster_id", "index"),
    sa.Index(None, "project_id", "name"),
    sa.Index(None, "project_id", "init_at", "id"),
    sa.Index(None, "physical_id"),
    _short_ids("nodes"),
)

cluster_policies = sa.Table(
    "cluster_policies",
    metadata,
    _id(),
    sa.Column("cluster_id", sa.ForeignKey(clusters.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("policy_id", sa.ForeignKey(policies.c.id), nullable=False, index=True),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    _json("data"),
    sa.Column("last_op", sa.DateTime(timezone=True)),
    created_at(),
    sa.UniqueConstraint("cluster_id", "policy_id"),
)

actions = sa.Table(
    "actions",
    metadata,
    _id(),
    # The order in which actions were accepted, which is the order in which those with one lock are carried out.
    sa.Column("sequence", sa.BigInteger, sa.Identity(), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    # Not foreign keys: an action outlives what it worked on.
    sa.Column("cluster_id", sa.Text),
    sa.Column("lock", sa.Text),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Column("parent_id", sa.ForeignKey("actions.id", ondelete="CASCADE")),
    # The part of the parent's plan that this belongs to; parts are carried out one after the other.
    sa.Column("part", sa.Integer, nullable=False, server_default="0"),
    sa.Column("owner", sa.Text),
    # How often an engine has taken this up; an engine with an older number may not write any more.
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("interval", sa.Integer, nullable=False, server_default="-1"),
    sa.Column("timeout", sa.Integer, nullable=False),
    sa.Column("start_time", sa.DateTime(timezone=True)),
    sa.Column("end_time", sa.DateTime(timezone=True)),
    # When something that waits must be looked at again.
    sa.Column("wake_at", sa.DateTime(timezone=True)),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("status_reason", sa.Text, nullable=False, server_default=""),
    sa.Column("control", sa.Text),
    _json("inputs"),
    _json("outputs"),
    _json("data"),
    # Whether an administrator of the cloud asked for this.
    sa.Column("is_admin", sa.Boolean, nullable=False, server_default=sa.false()),
    # What is to be done, set before anything is; null until then.
    sa.Column("plan", JSONB),
    # The W3C traceparent of the request, where there are traces.
    sa.Column("trace", sa.Text),
    created_at(),
    updated_at(),
    *_owner(),
    sa.Index(
        "ix_actions_open", "project_id", "sequence", postgresql_where=sa.text(f"parent_id IS NULL AND {_unfinished}")
    ),
    sa.Index("ix_actions_unfinished_lock", "lock", "sequence", postgresql_where=_unfinished),
    sa.Index("ix_actions_unfinished_target", "target", postgresql_where=_unfinished),
    sa.Index("ix_actions_abandoned", "owner", postgresql_where=sa.text("status = 'CANCELLED' AND owner IS NOT NULL")),
    sa.Index("ix_actions_wake_at", "wake_at", postgresql_where=sa.text("wake_at IS NOT NULL")),
    sa.Index("ix_actions_ended", "end_time", postgresql_where=sa.text("parent_id IS NULL AND end_time IS NOT NULL")),
    sa.Index(None, "parent_id", "part"),
    sa.Index(None, "target"),
    sa.Index(None, "cluster_id"),
    sa.Index(None, "project_id", "created_at", "id"),
    _short_ids("actions"),
)

# In literals, so that the planner always sees that the partial indexes apply.
unfinished: sa.ColumnElement[bool] = actions.c.status.in_([sa.literal_column(f"'{status}'") for status in UNFINISHED])
# Ended by force, and not let go by the engine that was at it.
abandoned = sa.and_(actions.c.status == sa.literal_column("'CANCELLED'"), actions.c.owner.is_not(None))

events = sa.Table(
    "events",
    metadata,
    _id(),
    sa.Column("timestamp", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.clock_timestamp()),
    sa.Column("oid", sa.Text, nullable=False),
    sa.Column("oname", sa.Text, nullable=False),
    sa.Column("otype", sa.Text, nullable=False),
    sa.Column("cluster_id", sa.Text),
    sa.Column("level", sa.Integer, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("status_reason", sa.Text, nullable=False, server_default=""),
    _json("meta_data"),
    *_owner(),
    sa.Index(None, "project_id", "timestamp", "id"),
    sa.Index(None, "cluster_id", "timestamp"),
    sa.Index(None, "timestamp"),
    sa.Index(None, "oid"),
    _short_ids("events"),
)

receivers = sa.Table(
    "receivers",
    metadata,
    _id(),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("cluster_id", sa.ForeignKey(clusters.c.id, ondelete="CASCADE"), index=True),
    sa.Column("action", sa.Text),
    _json("actor"),
    _json("params"),
    _json("channel"),
    # What a caller without a token must show.
    sa.Column("secret", sa.Text, nullable=False),
    *_owner(),
    created_at(),
    updated_at(),
    sa.Index(None, "project_id", "name"),
    _short_ids("receivers"),
)

services = sa.Table(
    "services",
    metadata,
    _id(),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("binary", sa.Text, nullable=False),
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("disabled", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("disabled_reason", sa.Text),
    created_at(),
    # The last sign of life.
    sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)

health_registry = sa.Table(
    "health_registry",
    metadata,
    sa.Column("cluster_id", sa.ForeignKey(clusters.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("policy_id", sa.ForeignKey(policies.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("check_type", sa.Text, nullable=False),
    sa.Column("interval", sa.Integer, nullable=False),
    _json("params"),
    sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true()),
    # The next look; whichever engine moves it on does the looking.
    sa.Column("due_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now(), index=True),
)

# What was brought from Senlin. What has been deleted since does not come back when it is imported again.
imports = sa.Table(
    "imports",
    metadata,
    sa.Column("noun", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)
