"""Servers, where they are, and the groups they belong to.

A server holds a claim on each host that must keep room for it: one as a rule, two while it moves or waits for its
resize to be confirmed, none once it is shelved off its host or found no host. `hosts.*_used` is the sum of the claims
on a host, and is changed in the transaction that changes the claim.
"""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, UUID

from roost.store.tables.base import created_at, metadata, updated_at
from roost.store.tables.compute import aggregates, hosts, scopes

server_groups = sa.Table(
    "server_groups",
    metadata,
    sa.Column("id", UUID(as_uuid=False), primary_key=True, server_default=sa.func.gen_random_uuid()),
    sa.Column("number", sa.BigInteger, sa.Identity(), nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    # Every change of the group's policies, members or claims raises it, with the row locked: a process
    # that remembers the members of a version need not read them again.
    sa.Column("version", sa.BigInteger, nullable=False, server_default="1"),
    # In front of a Nova: when Nova stopped listing the group. It is hidden and keeps its rules, in case it comes back.
    sa.Column("missing_since", sa.DateTime(timezone=True)),
    created_at(),
    updated_at(),
    sa.Index("ix_server_groups_project_id_number", "project_id", "number"),
    sa.Index("ix_server_groups_name", "name", "id"),
)

server_group_policies = sa.Table(
    "server_group_policies",
    metadata,
    sa.Column("group_id", sa.ForeignKey(server_groups.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("scope_id", sa.ForeignKey(scopes.c.id), index=True),
    sa.Column("builtin_scope", sa.Text),
    sa.Column("aggregate_id", sa.ForeignKey(aggregates.c.id), index=True),
    sa.Column("zone", sa.Text),
    sa.Column("rules", JSONB, nullable=False, server_default="{}"),
    sa.CheckConstraint("(scope_id IS NULL) <> (builtin_scope IS NULL)", name="one_scope"),
    sa.CheckConstraint("builtin_scope IN ('host', 'availability_zone')", name="builtin"),
    sa.CheckConstraint("aggregate_id IS NULL OR scope_id IS NOT NULL", name="aggregate"),
    sa.CheckConstraint("zone IS NULL OR builtin_scope = 'availability_zone'", name="zone"),
)

servers = sa.Table(
    "servers",
    metadata,
    sa.Column("id", UUID(as_uuid=False), primary_key=True),
    sa.Column("number", sa.BigInteger, sa.Identity(), nullable=False, unique=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("hostname", sa.Text, nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("flavor", JSONB, nullable=False),
    sa.Column("image_id", sa.Text),
    sa.Column("key_name", sa.Text),
    sa.Column("user_data", sa.Text),
    sa.Column("config_drive", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("metadata", JSONB, nullable=False, server_default="{}"),
    sa.Column("tags", JSONB, nullable=False, server_default="[]"),
    sa.Column("addresses", JSONB, nullable=False, server_default="{}"),
    sa.Column("hints", JSONB, nullable=False, server_default="{}"),
    # The zone that the server asked for and stays in; its present zone is that of its host.
    sa.Column("zone", sa.Text),
    sa.Column("reservation_id", sa.Text, nullable=False),
    sa.Column("launch_index", sa.Integer, nullable=False, server_default="0"),
    sa.Column("host_id", sa.ForeignKey(hosts.c.id), index=True),
    sa.Column("group_id", sa.ForeignKey(server_groups.c.id, ondelete="SET NULL"), index=True),
    # Its number in a group that is divided into partitions; given when it joins, and kept wherever it moves.
    sa.Column("partition", sa.Integer),
    sa.Column("vm_state", sa.Text, nullable=False),
    sa.Column("task_state", sa.Text),
    sa.Column("power_state", sa.Integer, nullable=False, server_default="0"),
    sa.Column("locked", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("locked_reason", sa.Text),
    # What the engine does next, and when; null if there is nothing to do.
    sa.Column("due_at", sa.DateTime(timezone=True)),
    # What it takes to finish or undo the step under way: the other host, the other flavor, the state to return to.
    sa.Column("step", JSONB),
    sa.Column("fault", JSONB),
    sa.Column("explanation", JSONB),
    # Names the request that a server answers, so that the same request again finds it instead of making another.
    sa.Column("client_token", sa.Text, unique=True),
    sa.Column("launched_at", sa.DateTime(timezone=True)),
    created_at(),
    updated_at(),
    sa.Index("ix_servers_project_id_number", "project_id", "number"),
    sa.Index("ix_servers_due_at", "due_at", postgresql_where="due_at IS NOT NULL"),
    sa.Index("ix_servers_reservation_id", "reservation_id"),
    sa.Index("ix_servers_name", "name", "id"),
    sa.Index("ix_servers_vm_state", "vm_state", "id"),
    sa.Index("ix_servers_flavor", sa.text("(flavor ->> 'name')"), "id"),
    sa.Index("ix_servers_failed", "number", postgresql_where="vm_state = 'error'"),
)

# What is kept of a deleted server for a while: its row, and what was done to it. A trigger writes it.
deleted_servers = sa.Table(
    "deleted_servers",
    metadata,
    sa.Column("id", UUID(as_uuid=False), primary_key=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now(), index=True),
    sa.Column("host", sa.Text),
    sa.Column("host_zone", sa.Text),
    sa.Column("server", JSONB, nullable=False),
    sa.Column("actions", JSONB, nullable=False),
    sa.Index("ix_deleted_servers_project_id_deleted_at", "project_id", "deleted_at"),
)

claims = sa.Table(
    "claims",
    metadata,
    sa.Column("server_id", sa.ForeignKey(servers.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("host_id", sa.ForeignKey(hosts.c.id), primary_key=True, index=True),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("disk_gb", sa.Integer, nullable=False),
)

# What a project uses now, changed in the transaction that uses it, so that a quota is one row to look at, and exact.
project_usage = sa.Table(
    "project_usage",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("instances", sa.Integer, nullable=False, server_default="0"),
    sa.Column("cores", sa.Integer, nullable=False, server_default="0"),
    sa.Column("ram", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("server_groups", sa.Integer, nullable=False, server_default="0"),
)

# The rest of what projects use: counted by transactions that have no limit to check, each in one of several rows, so
# that they need not wait for each other. What a project uses is the sum of both tables; a shard may be negative.
usage_shards = sa.Table(
    "usage_shards",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("shard", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("instances", sa.Integer, nullable=False, server_default="0"),
    sa.Column("cores", sa.Integer, nullable=False, server_default="0"),
    sa.Column("ram", sa.BigInteger, nullable=False, server_default="0"),
)

instance_actions = sa.Table(
    "instance_actions",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("server_id", sa.ForeignKey(servers.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("start_time", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("finish_time", sa.DateTime(timezone=True)),
    sa.Column("message", sa.Text),
    sa.Index("ix_instance_actions_create", "start_time", postgresql_where=sa.text("action = 'create'")),
)

migrations = sa.Table(
    "migrations",
    metadata,
    sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
    sa.Column("uuid", UUID(as_uuid=False), nullable=False, server_default=sa.func.gen_random_uuid()),
    sa.Column("server_id", sa.ForeignKey(servers.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("source", sa.Text),
    sa.Column("destination", sa.Text),
    sa.Column("old_flavor_id", sa.Text),
    sa.Column("new_flavor_id", sa.Text),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    created_at(),
    updated_at(),
)

# Notifications of committed changes that have not been sent yet, in the order of the changes.
outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("event_type", sa.Text, nullable=False),
    sa.Column("payload", JSONB, nullable=False),
    created_at(),
)
