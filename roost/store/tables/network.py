"""Networks, their subnets, the ports on them and the addresses that these hold, and security groups.

An address belongs to one port (`pk_port_addresses`), also under concurrent requests. The ports of servers on the
network that servers get when they name none are made and removed with the servers, by triggers on `servers`.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, INET, JSONB, UUID

from roost.store.tables.base import created_at, metadata


def _id() -> sa.Column[Any]:
    return sa.Column("id", UUID(as_uuid=False), primary_key=True, server_default=sa.func.gen_random_uuid())


def _described() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("project_id", sa.Text, nullable=False, index=True),
        sa.Column("name", sa.Text, nullable=False, server_default=""),
        sa.Column("description", sa.Text, nullable=False, server_default=""),
        sa.Column("tags", ARRAY(sa.Text), nullable=False, server_default="{}"),
        created_at(),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )


networks = sa.Table(
    "networks",
    metadata,
    _id(),
    *_described(),
    sa.Column("admin_state_up", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("shared", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("external", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("port_security_enabled", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("mtu", sa.Integer, nullable=False, server_default="1450"),
    sa.Column("dns_domain", sa.Text, nullable=False, server_default=""),
)

subnets = sa.Table(
    "subnets",
    metadata,
    _id(),
    sa.Column("network_id", sa.ForeignKey(networks.c.id, ondelete="CASCADE"), nullable=False, index=True),
    *_described(),
    sa.Column("ip_version", sa.Integer, nullable=False),
    sa.Column("cidr", sa.Text, nullable=False),
    sa.Column("gateway_ip", sa.Text),
    sa.Column("enable_dhcp", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("allocation_pools", JSONB, nullable=False),
    sa.Column("dns_nameservers", JSONB, nullable=False, server_default="[]"),
    sa.Column("host_routes", JSONB, nullable=False, server_default="[]"),
    sa.Column("service_types", JSONB, nullable=False, server_default="[]"),
)

ports = sa.Table(
    "ports",
    metadata,
    _id(),
    sa.Column("network_id", sa.ForeignKey(networks.c.id), nullable=False, index=True),
    *_described(),
    sa.Column("mac_address", sa.Text, nullable=False, unique=True),
    sa.Column("admin_state_up", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("device_id", sa.Text, nullable=False, server_default="", index=True),
    sa.Column("device_owner", sa.Text, nullable=False, server_default=""),
    # Null: the default one of the project.
    sa.Column("security_groups", ARRAY(sa.Text)),
    sa.Column("port_security_enabled", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("allowed_address_pairs", JSONB, nullable=False, server_default="[]"),
    sa.Column("extra_dhcp_opts", JSONB, nullable=False, server_default="[]"),
    # Made for a server, and gone with it; others outlive what they are plugged into.
    sa.Column("of_server", sa.Boolean, nullable=False, server_default=sa.false()),
)

port_addresses = sa.Table(
    "port_addresses",
    metadata,
    sa.Column("subnet_id", sa.ForeignKey(subnets.c.id), primary_key=True),
    sa.Column("address", INET, primary_key=True),
    sa.Column("port_id", sa.ForeignKey(ports.c.id, ondelete="CASCADE"), nullable=False, index=True),
)

floating_ips = sa.Table(
    "floating_ips",
    metadata,
    _id(),
    *_described(),
    sa.Column("floating_network_id", sa.ForeignKey(networks.c.id), nullable=False),
    sa.Column("floating_ip_address", sa.Text, nullable=False),
    # What it stands in front of; null for nothing.
    sa.Column("port_id", sa.ForeignKey(ports.c.id, ondelete="SET NULL")),
    sa.Column("fixed_ip_address", sa.Text),
    sa.UniqueConstraint("port_id", "fixed_ip_address"),
)

routers = sa.Table(
    "routers",
    metadata,
    _id(),
    *_described(),
    sa.Column("admin_state_up", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("gateway_network_id", sa.ForeignKey(networks.c.id)),
    sa.Column("enable_snat", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("routes", JSONB, nullable=False, server_default="[]"),
)

security_groups = sa.Table(
    "security_groups",
    metadata,
    _id(),
    *_described(),
    sa.Column("stateful", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Index("uq_security_groups_default", "project_id", unique=True, postgresql_where="name = 'default'"),
)

security_group_rules = sa.Table(
    "security_group_rules",
    metadata,
    _id(),
    sa.Column("security_group_id", sa.ForeignKey(security_groups.c.id, ondelete="CASCADE"), nullable=False, index=True),
    *_described(),
    sa.Column("direction", sa.Text, nullable=False),
    sa.Column("ethertype", sa.Text, nullable=False),
    sa.Column("protocol", sa.Text),
    sa.Column("port_range_min", sa.Integer),
    sa.Column("port_range_max", sa.Integer),
    sa.Column("remote_ip_prefix", sa.Text),
    sa.Column("remote_group_id", sa.ForeignKey(security_groups.c.id, ondelete="CASCADE")),
)

network_quotas = sa.Table(
    "network_quotas",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("limit", sa.Integer, nullable=False),
)
