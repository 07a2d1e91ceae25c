"""Deleted servers are kept for a while, with what was done to them."""

from alembic import op

from roost.store import online

revision = "0017"
down_revision = "0016"

# The last action is the deletion, which ends with it.
KEEP = """
    CREATE FUNCTION keep_deleted_server() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO deleted_servers (id, project_id, host, host_zone, server, actions)
        SELECT OLD.id, OLD.project_id, h.name, h.availability_zone, to_jsonb(OLD), coalesce(
            (SELECT jsonb_agg(to_jsonb(a) || jsonb_build_object('finish_time', coalesce(a.finish_time, now()))
                              ORDER BY a.id DESC)
             FROM instance_actions a WHERE a.server_id = OLD.id), '[]')
        FROM (SELECT 1) AS one LEFT JOIN hosts h ON h.id = OLD.host_id
        ON CONFLICT DO NOTHING;
        RETURN OLD;
    END $$
"""

_TABLES = """
    CREATE TABLE deleted_servers (
        id uuid CONSTRAINT pk_deleted_servers PRIMARY KEY,
        project_id text NOT NULL,
        deleted_at timestamptz NOT NULL DEFAULT now(),
        host text,
        host_zone text,
        server jsonb NOT NULL,
        actions jsonb NOT NULL
    );
    CREATE INDEX ix_deleted_servers_deleted_at ON deleted_servers (deleted_at);
    CREATE INDEX ix_deleted_servers_project_id_deleted_at ON deleted_servers (project_id, deleted_at);
"""


def upgrade() -> None:
    """Apply."""
    online.run(_TABLES)
    op.execute(KEEP)
    op.execute(
        """CREATE TRIGGER keep_deleted_server BEFORE DELETE ON servers
           FOR EACH ROW EXECUTE FUNCTION keep_deleted_server()"""
    )
