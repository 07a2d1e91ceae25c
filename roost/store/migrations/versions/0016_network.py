"""Networks, ports and security groups; the ports of servers come and go with them."""

from alembic import op

from roost.store import online

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

_TABLES = """
    CREATE TABLE network_quotas (
        project_id text NOT NULL,
        resource text NOT NULL,
        "limit" integer NOT NULL,
        CONSTRAINT pk_network_quotas PRIMARY KEY (project_id, resource)
    );
    CREATE TABLE networks (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_networks PRIMARY KEY,
        project_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text NOT NULL DEFAULT '',
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        admin_state_up boolean NOT NULL DEFAULT true,
        shared boolean NOT NULL DEFAULT false,
        external boolean NOT NULL DEFAULT false,
        port_security_enabled boolean NOT NULL DEFAULT true,
        mtu integer NOT NULL DEFAULT 1450,
        dns_domain text NOT NULL DEFAULT ''
    );
    CREATE INDEX ix_networks_project_id ON networks (project_id);
    CREATE TABLE security_groups (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_security_groups PRIMARY KEY,
        project_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text NOT NULL DEFAULT '',
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        stateful boolean NOT NULL DEFAULT true
    );
    CREATE INDEX ix_security_groups_project_id ON security_groups (project_id);
    CREATE UNIQUE INDEX uq_security_groups_default ON security_groups (project_id) WHERE name = 'default';
    CREATE TABLE ports (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_ports PRIMARY KEY,
        network_id uuid NOT NULL CONSTRAINT fk_ports_network_id REFERENCES networks (id),
        project_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text NOT NULL DEFAULT '',
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        mac_address text NOT NULL CONSTRAINT uq_ports_mac_address UNIQUE,
        admin_state_up boolean NOT NULL DEFAULT true,
        device_id text NOT NULL DEFAULT '',
        device_owner text NOT NULL DEFAULT '',
        security_groups text[],
        port_security_enabled boolean NOT NULL DEFAULT true,
        allowed_address_pairs jsonb NOT NULL DEFAULT '[]',
        extra_dhcp_opts jsonb NOT NULL DEFAULT '[]',
        of_server boolean NOT NULL DEFAULT false
    );
    CREATE INDEX ix_ports_device_id ON ports (device_id);
    CREATE INDEX ix_ports_network_id ON ports (network_id);
    CREATE INDEX ix_ports_project_id ON ports (project_id);
    CREATE TABLE security_group_rules (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_security_group_rules PRIMARY KEY,
        security_group_id uuid NOT NULL,
        project_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text NOT NULL DEFAULT '',
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        direction text NOT NULL,
        ethertype text NOT NULL,
        protocol text,
        port_range_min integer,
        port_range_max integer,
        remote_ip_prefix text,
        remote_group_id uuid,
        CONSTRAINT fk_security_group_rules_remote_group_id FOREIGN KEY (remote_group_id)
            REFERENCES security_groups (id) ON DELETE CASCADE,
        CONSTRAINT fk_security_group_rules_security_group_id FOREIGN KEY (security_group_id)
            REFERENCES security_groups (id) ON DELETE CASCADE
    );
    CREATE INDEX ix_security_group_rules_project_id ON security_group_rules (project_id);
    CREATE INDEX ix_security_group_rules_security_group_id ON security_group_rules (security_group_id);
    CREATE TABLE subnets (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_subnets PRIMARY KEY,
        network_id uuid NOT NULL CONSTRAINT fk_subnets_network_id REFERENCES networks (id) ON DELETE CASCADE,
        project_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text NOT NULL DEFAULT '',
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        ip_version integer NOT NULL,
        cidr text NOT NULL,
        gateway_ip text,
        enable_dhcp boolean NOT NULL DEFAULT true,
        allocation_pools jsonb NOT NULL,
        dns_nameservers jsonb NOT NULL DEFAULT '[]',
        host_routes jsonb NOT NULL DEFAULT '[]',
        service_types jsonb NOT NULL DEFAULT '[]'
    );
    CREATE INDEX ix_subnets_network_id ON subnets (network_id);
    CREATE INDEX ix_subnets_project_id ON subnets (project_id);
    CREATE TABLE port_addresses (
        subnet_id uuid NOT NULL CONSTRAINT fk_port_addresses_subnet_id REFERENCES subnets (id),
        address inet NOT NULL,
        port_id uuid NOT NULL CONSTRAINT fk_port_addresses_port_id REFERENCES ports (id) ON DELETE CASCADE,
        CONSTRAINT pk_port_addresses PRIMARY KEY (subnet_id, address)
    );
    CREATE INDEX ix_port_addresses_port_id ON port_addresses (port_id);
"""


def upgrade() -> None:
    """Apply."""
    online.run(_TABLES)
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
