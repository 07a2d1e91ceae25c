"""The inventory of the embedded cloud: hosts, how they are divided, what can be booted, and who may use how much.

Two promises are kept by the database alone, whichever side changes and however many change at once:

* a host is in at most one availability zone. `hosts.availability_zone` is the one zone of a host; every membership
  in an aggregate that carries a zone must name that same zone (`fk_aggregate_hosts_host_id_zone`).
* a host is in at most one aggregate of each scope (`uq_aggregate_hosts_host_id_scope_id`).

For that, each membership repeats its aggregate's zone and scope; the composite foreign key to `aggregates` keeps the
copy true and cascades changes. '' and 0 stand for "none", since a null would switch a composite key off.
"""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

from roost.store.tables.base import created_at, metadata, updated_at

_new_uuid = sa.func.gen_random_uuid()

# One row: what the inventory was made from, and how its simulated hosts behave.
topologies = sa.Table(
    "topologies",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False, server_default="1"),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("simulation", JSONB, nullable=False),
    created_at(),
    sa.CheckConstraint("id = 1", name="only_one"),
)

hosts = sa.Table(
    "hosts",
    metadata,
    sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("uuid", UUID(as_uuid=False), nullable=False, unique=True, server_default=_new_uuid),
    sa.Column("service_uuid", UUID(as_uuid=False), nullable=False, unique=True, server_default=_new_uuid),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("availability_zone", sa.Text, nullable=False, server_default=""),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("disk_gb", sa.Integer, nullable=False),
    sa.Column("vcpus_used", sa.Integer, nullable=False, server_default="0"),
    sa.Column("memory_mb_used", sa.Integer, nullable=False, server_default="0"),
    sa.Column("disk_gb_used", sa.Integer, nullable=False, server_default="0"),
    sa.Column("servers", sa.Integer, nullable=False, server_default="0"),
    # Raised by every change of what is used, so that a process knows which of two counts is the later one.
    sa.Column("room_version", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("disabled_reason", sa.Text),
    sa.Column("forced_down", sa.Boolean, nullable=False, server_default=sa.false()),
    created_at(),
    updated_at(),
    sa.UniqueConstraint("id", "availability_zone"),
    sa.Index("ix_hosts_availability_zone_name", "availability_zone", "name"),
    sa.CheckConstraint("vcpus_used BETWEEN 0 AND vcpus", name="vcpus"),
    sa.CheckConstraint("memory_mb_used BETWEEN 0 AND memory_mb", name="memory"),
    sa.CheckConstraint("disk_gb_used BETWEEN 0 AND disk_gb", name="disk"),
)

scopes = sa.Table(
    "scopes",
    metadata,
    sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
    sa.Column("uuid", UUID(as_uuid=False), nullable=False, unique=True, server_default=_new_uuid),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("allow_identifiers", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("obfuscate_identifiers", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("namespace_uuid", UUID(as_uuid=False), nullable=False, server_default=_new_uuid),
    created_at(),
    updated_at(),
)

aggregates = sa.Table(
    "aggregates",
    metadata,
    sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
    sa.Column("uuid", UUID(as_uuid=False), nullable=False, unique=True, server_default=_new_uuid),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("availability_zone", sa.Text, nullable=False, server_default=""),
    sa.Column("scope_id", sa.Integer, nullable=False, server_default="0"),
    sa.Column(
        "scope", sa.Integer, sa.Computed("nullif(scope_id, 0)", persisted=True), sa.ForeignKey(scopes.c.id), index=True
    ),
    created_at(),
    updated_at(),
    sa.UniqueConstraint("id", "availability_zone", "scope_id"),
)

aggregate_metadata = sa.Table(
    "aggregate_metadata",
    metadata,
    sa.Column("aggregate_id", sa.ForeignKey(aggregates.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

aggregate_hosts = sa.Table(
    "aggregate_hosts",
    metadata,
    sa.Column("aggregate_id", sa.Integer, primary_key=True),
    sa.Column("host_id", sa.ForeignKey(hosts.c.id), primary_key=True),
    sa.Column("availability_zone", sa.Text, nullable=False, server_default=""),
    sa.Column("scope_id", sa.Integer, nullable=False, server_default="0"),
    sa.Column("zone", sa.Text, sa.Computed("nullif(availability_zone, '')", persisted=True)),
    sa.ForeignKeyConstraint(
        ["aggregate_id", "availability_zone", "scope_id"],
        [aggregates.c.id, aggregates.c.availability_zone, aggregates.c.scope_id],
        name="fk_aggregate_hosts_aggregate",
        onupdate="CASCADE",
    ),
    sa.ForeignKeyConstraint(
        ["host_id", "zone"],
        [hosts.c.id, hosts.c.availability_zone],
        name="fk_aggregate_hosts_host_id_zone",
        deferrable=True,
        initially="DEFERRED",
    ),
    sa.Index(
        "uq_aggregate_hosts_host_id_scope_id", "host_id", "scope_id", unique=True, postgresql_where="scope_id <> 0"
    ),
)

# What happened to the fleet, for the processes that keep it in memory: each row names the hosts to look at again.
fleet_changes = sa.Table(
    "fleet_changes",
    metadata,
    sa.Column("generation", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("host_ids", ARRAY(sa.Integer), nullable=False),
    sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)

flavors = sa.Table(
    "flavors",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("disk_gb", sa.Integer, nullable=False),
    sa.Column("ephemeral_gb", sa.Integer, nullable=False, server_default="0"),
    sa.Column("swap_mb", sa.Integer, nullable=False, server_default="0"),
    sa.Column("rxtx_factor", sa.Float, nullable=False, server_default="1.0"),
    sa.Column("is_public", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("description", sa.Text),
    sa.Column("extra_specs", JSONB, nullable=False, server_default="{}"),
    created_at(),
)

flavor_access = sa.Table(
    "flavor_access",
    metadata,
    sa.Column("flavor_id", sa.ForeignKey(flavors.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("project_id", sa.Text, primary_key=True),
)

images = sa.Table(
    "images",
    metadata,
    sa.Column("id", UUID(as_uuid=False), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("min_disk_gb", sa.Integer, nullable=False, server_default="0"),
    sa.Column("min_memory_mb", sa.Integer, nullable=False, server_default="0"),
    # Null for the images of the cloud itself.
    sa.Column("project_id", sa.Text),
    sa.Column("status", sa.Text, nullable=False, server_default="active"),
    sa.Column("visibility", sa.Text, nullable=False, server_default="public"),
    sa.Column("container_format", sa.Text, server_default="bare"),
    sa.Column("disk_format", sa.Text, server_default="qcow2"),
    sa.Column("protected", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("hidden", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("tags", ARRAY(sa.Text), nullable=False, server_default="{}"),
    sa.Column("properties", JSONB, nullable=False, server_default="{}"),
    sa.Column("checksum", sa.Text),
    sa.Column("sha512", sa.Text),
    # Whether its data is in the folder of images; simulated images have none.
    sa.Column("stored", sa.Boolean, nullable=False, server_default=sa.false()),
    created_at(),
    updated_at(),
)

image_members = sa.Table(
    "image_members",
    metadata,
    sa.Column("image_id", sa.ForeignKey(images.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("member_id", sa.Text, primary_key=True, index=True),
    sa.Column("status", sa.Text, nullable=False, server_default="pending"),
    created_at(),
    updated_at(),
)

keypairs = sa.Table(
    "keypairs",
    metadata,
    sa.Column("id", sa.Integer, sa.Identity(), unique=True),
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("type", sa.Text, nullable=False, server_default="ssh"),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("public_key", sa.Text, nullable=False),
    created_at(),
)

# Limits that were set, for a project or (user_id) one user in it; others follow the configuration.
quotas = sa.Table(
    "quotas",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True, server_default=""),
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("limit", sa.Integer, nullable=False),
)

quota_classes = sa.Table(
    "quota_classes",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("limit", sa.Integer, nullable=False),
)

metadef_namespaces = sa.Table(
    "metadef_namespaces",
    metadata,
    sa.Column("namespace", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("display_name", sa.Text),
    sa.Column("description", sa.Text),
    sa.Column("visibility", sa.Text, nullable=False, server_default="private"),
    sa.Column("protected", sa.Boolean, nullable=False, server_default=sa.false()),
    # Each by name, as it was written.
    sa.Column("objects", JSONB, nullable=False, server_default="{}"),
    sa.Column("properties", JSONB, nullable=False, server_default="{}"),
    sa.Column("tags", JSONB, nullable=False, server_default="{}"),
    sa.Column("resource_types", JSONB, nullable=False, server_default="{}"),
    created_at(),
    updated_at(),
)
