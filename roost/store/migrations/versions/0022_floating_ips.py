"""Floating addresses."""

from roost.store import online

revision = "0022"
down_revision = "0021"

_TABLES = """
    CREATE TABLE floating_ips (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_floating_ips PRIMARY KEY,
        project_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text NOT NULL DEFAULT '',
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        floating_network_id uuid NOT NULL CONSTRAINT fk_floating_ips_floating_network_id REFERENCES networks (id),
        floating_ip_address text NOT NULL,
        port_id uuid CONSTRAINT fk_floating_ips_port_id REFERENCES ports (id) ON DELETE SET NULL,
        fixed_ip_address text,
        CONSTRAINT uq_floating_ips_port_id_fixed_ip_address UNIQUE (port_id, fixed_ip_address)
    );
    CREATE INDEX ix_floating_ips_project_id ON floating_ips (project_id);
"""


def upgrade() -> None:
    """Apply."""
    online.run(_TABLES)
