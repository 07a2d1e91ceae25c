"""Routers."""

from roost.store import online

revision = "0023"
down_revision = "0022"

_TABLES = """
    CREATE TABLE routers (
        id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_routers PRIMARY KEY,
        project_id text NOT NULL,
        name text NOT NULL DEFAULT '',
        description text NOT NULL DEFAULT '',
        tags text[] NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now(),
        admin_state_up boolean NOT NULL DEFAULT true,
        gateway_network_id uuid CONSTRAINT fk_routers_gateway_network_id REFERENCES networks (id),
        enable_snat boolean NOT NULL DEFAULT true,
        routes jsonb NOT NULL DEFAULT '[]'
    );
    CREATE INDEX ix_routers_project_id ON routers (project_id);
"""


def upgrade() -> None:
    """Apply."""
    online.run(_TABLES)
