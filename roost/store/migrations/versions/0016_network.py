"""Networks, ports and security groups; the ports of servers come and go with them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"

PRIVATE, PUBLIC = "5b7d9ca4-8a11-4f0c-9d43-3f6f6f0d5a01", "5b7d9ca4-8a11-4f0c-9d43-3f6f6f0d5a02"
PRIVATE_SUBNET, PUBLIC_SUBNET = "5b7d9ca4-8a11-4f0c-9d43-3f6f6f0d5b01", "5b7d9ca4-8a11-4f0c-9d43-3f6f6f0d5b02"

# Each address of a server, as it is shown, with the port's hardware address.
ENTRIES = """
    SELECT s.id, s.project_id, entry ->> 'OS-EXT-IPS-MAC:mac_addr' AS mac, CAST(entry ->> 'addr' AS inet) AS address
    FROM {servers} s, jsonb_each(s.addresses) AS n (network, entries), jsonb_array_elements(entries) AS entry
"""

# A port that was reserved for the server is bound; where none was, the server is on the private network.
PLUG = f"""
    CREATE FUNCTION plug_servers() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM made WHERE addresses <> '{{}}') THEN
            RETURN NULL;
        END IF;
        INSERT INTO ports (network_id, project_id, mac_address, device_id, device_owner, of_server)
        SELECT DISTINCT CAST('{PRIVATE}' AS uuid), e.project_id, e.mac, CAST(e.id AS text), 'compute:nova', true
        FROM ({ENTRIES.format(servers="made")}) AS e WHERE e.mac IS NOT NULL
        ON CONFLICT (mac_address) DO UPDATE SET device_id = EXCLUDED.device_id, device_owner = EXCLUDED.device_owner
            WHERE ports.device_owner = 'compute:pending';
        IF EXISTS (SELECT 1 FROM ({ENTRIES.format(servers="made")}) AS e WHERE NOT EXISTS (
            SELECT 1 FROM ports p WHERE p.mac_address = e.mac AND p.device_id = CAST(e.id AS text)))
        THEN
            RAISE unique_violation USING MESSAGE = 'another port has the hardware address of a new server';
        END IF;
        INSERT INTO port_addresses (subnet_id, address, port_id)
        SELECT CAST('{PRIVATE_SUBNET}' AS uuid), e.address, p.id
        FROM ({ENTRIES.format(servers="made")}) AS e
        JOIN ports p ON p.mac_address = e.mac AND p.device_id = CAST(e.id AS text)
        WHERE NOT EXISTS (SELECT 1 FROM port_addresses a WHERE a.port_id = p.id);
        RETURN NULL;
    END $$
"""

UNPLUG = """
    CREATE FUNCTION unplug_servers() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM ports WHERE of_server AND device_id IN (SELECT CAST(id AS text) FROM gone);
        UPDATE ports SET device_id = '', device_owner = '' WHERE device_id IN (SELECT CAST(id AS text) FROM gone);
        RETURN NULL;
    END $$
"""


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "network_quotas",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource", name=op.f("pk_network_quotas")),
    )
    op.create_table(
        "networks",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("admin_state_up", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("shared", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("external", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("port_security_enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("mtu", sa.Integer(), server_default="1450", nullable=False),
        sa.Column("dns_domain", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_networks")),
    )
    op.create_index(op.f("ix_networks_project_id"), "networks", ["project_id"], unique=False)
    op.create_table(
        "security_groups",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("stateful", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_security_groups")),
    )
    op.create_index(op.f("ix_security_groups_project_id"), "security_groups", ["project_id"], unique=False)
    op.create_index(
        "uq_security_groups_default",
        "security_groups",
        ["project_id"],
        unique=True,
        postgresql_where="name = 'default'",
    )
    op.create_table(
        "ports",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("network_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("mac_address", sa.Text(), nullable=False),
        sa.Column("admin_state_up", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("device_id", sa.Text(), server_default="", nullable=False),
        sa.Column("device_owner", sa.Text(), server_default="", nullable=False),
        sa.Column("security_groups", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("port_security_enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column(
            "allowed_address_pairs", postgresql.JSONB(astext_type=sa.Text()), server_default="[]", nullable=False
        ),
        sa.Column("extra_dhcp_opts", postgresql.JSONB(astext_type=sa.Text()), server_default="[]", nullable=False),
        sa.Column("of_server", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name=op.f("fk_ports_network_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ports")),
        sa.UniqueConstraint("mac_address", name=op.f("uq_ports_mac_address")),
    )
    op.create_index(op.f("ix_ports_device_id"), "ports", ["device_id"], unique=False)
    op.create_index(op.f("ix_ports_network_id"), "ports", ["network_id"], unique=False)
    op.create_index(op.f("ix_ports_project_id"), "ports", ["project_id"], unique=False)
    op.create_table(
        "security_group_rules",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("security_group_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("ethertype", sa.Text(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=True),
        sa.Column("port_range_min", sa.Integer(), nullable=True),
        sa.Column("port_range_max", sa.Integer(), nullable=True),
        sa.Column("remote_ip_prefix", sa.Text(), nullable=True),
        sa.Column("remote_group_id", sa.UUID(as_uuid=False), nullable=True),
        sa.ForeignKeyConstraint(
            ["remote_group_id"],
            ["security_groups.id"],
            name=op.f("fk_security_group_rules_remote_group_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["security_group_id"],
            ["security_groups.id"],
            name=op.f("fk_security_group_rules_security_group_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_security_group_rules")),
    )
    op.create_index(op.f("ix_security_group_rules_project_id"), "security_group_rules", ["project_id"], unique=False)
    op.create_index(
        op.f("ix_security_group_rules_security_group_id"), "security_group_rules", ["security_group_id"], unique=False
    )
    op.create_table(
        "subnets",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("network_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), server_default="", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ip_version", sa.Integer(), nullable=False),
        sa.Column("cidr", sa.Text(), nullable=False),
        sa.Column("gateway_ip", sa.Text(), nullable=True),
        sa.Column("enable_dhcp", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("allocation_pools", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("dns_nameservers", postgresql.JSONB(astext_type=sa.Text()), server_default="[]", nullable=False),
        sa.Column("host_routes", postgresql.JSONB(astext_type=sa.Text()), server_default="[]", nullable=False),
        sa.Column("service_types", postgresql.JSONB(astext_type=sa.Text()), server_default="[]", nullable=False),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name=op.f("fk_subnets_network_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subnets")),
    )
    op.create_index(op.f("ix_subnets_network_id"), "subnets", ["network_id"], unique=False)
    op.create_index(op.f("ix_subnets_project_id"), "subnets", ["project_id"], unique=False)
    op.create_table(
        "port_addresses",
        sa.Column("subnet_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("address", postgresql.INET(), nullable=False),
        sa.Column("port_id", sa.UUID(as_uuid=False), nullable=False),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name=op.f("fk_port_addresses_port_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["subnet_id"], ["subnets.id"], name=op.f("fk_port_addresses_subnet_id")),
        sa.PrimaryKeyConstraint("subnet_id", "address", name=op.f("pk_port_addresses")),
    )
    op.create_index(op.f("ix_port_addresses_port_id"), "port_addresses", ["port_id"], unique=False)
    op.execute("CREATE SEQUENCE address_blocks MINVALUE 0 START 0 MAXVALUE 131071 CYCLE")
    op.execute(
        f"""INSERT INTO networks (id, project_id, name, shared, external) VALUES
            ('{PRIVATE}', '', 'private', true, false), ('{PUBLIC}', '', 'public', true, true)"""
    )
    op.execute(
        f"""INSERT INTO subnets (id, network_id, project_id, name, ip_version, cidr, gateway_ip, allocation_pools)
            VALUES ('{PRIVATE_SUBNET}', '{PRIVATE}', '', 'private-subnet', 4, '10.0.0.0/8', '10.0.0.1',
                    '[{{"start": "10.0.0.2", "end": "10.255.255.254"}}]'),
                   ('{PUBLIC_SUBNET}', '{PUBLIC}', '', 'public-subnet', 4, '172.24.4.0/24', '172.24.4.1',
                    '[{{"start": "172.24.4.2", "end": "172.24.4.254"}}]')"""
    )
    # Addresses were drawn by lot before: of two servers with the same one, one has a port.
    op.execute(
        f"""INSERT INTO ports (network_id, project_id, mac_address, device_id, device_owner, of_server)
            SELECT CAST('{PRIVATE}' AS uuid), e.project_id, e.mac, CAST(e.id AS text), 'compute:nova', true
            FROM ({ENTRIES.format(servers="servers")}) AS e WHERE e.mac IS NOT NULL ON CONFLICT DO NOTHING"""
    )
    op.execute(
        f"""INSERT INTO port_addresses (subnet_id, address, port_id)
            SELECT CAST('{PRIVATE_SUBNET}' AS uuid), e.address, p.id FROM ({ENTRIES.format(servers="servers")}) AS e
            JOIN ports p ON p.mac_address = e.mac AND p.device_id = CAST(e.id AS text) ON CONFLICT DO NOTHING"""
    )
    op.execute(PLUG)
    op.execute(UNPLUG)
    op.execute(
        """CREATE TRIGGER plug_servers AFTER INSERT ON servers REFERENCING NEW TABLE AS made
           FOR EACH STATEMENT EXECUTE FUNCTION plug_servers()"""
    )
    op.execute(
        """CREATE TRIGGER unplug_servers AFTER DELETE ON servers REFERENCING OLD TABLE AS gone
           FOR EACH STATEMENT EXECUTE FUNCTION unplug_servers()"""
    )
