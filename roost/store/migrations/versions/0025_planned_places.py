"""Places of applied plans, held for servers that a nova-scheduler is still to place."""

from roost.store import online

revision = "0025"
down_revision = "0024"

_TABLES = """
    CREATE TABLE planned_places (
        token uuid DEFAULT gen_random_uuid() CONSTRAINT pk_planned_places PRIMARY KEY,
        group_id uuid NOT NULL,
        host_id integer NOT NULL CONSTRAINT fk_planned_places_host_id REFERENCES hosts (id) ON DELETE CASCADE,
        partition integer,
        server_id uuid,
        created_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT fk_planned_places_group_id FOREIGN KEY (group_id) REFERENCES server_groups (id) ON DELETE CASCADE
    );
    CREATE INDEX ix_planned_places_group_id ON planned_places (group_id);
    CREATE INDEX ix_planned_places_host_id ON planned_places (host_id);
"""


def upgrade() -> None:
    """Apply."""
    online.run(_TABLES)
