"""Deleted servers are kept for a while, with what was done to them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

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


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "deleted_servers",
        sa.Column("id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("host_zone", sa.Text(), nullable=True),
        sa.Column("server", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("actions", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deleted_servers")),
    )
    op.create_index("ix_deleted_servers_deleted_at", "deleted_servers", ["deleted_at"])
    op.create_index("ix_deleted_servers_project_id_deleted_at", "deleted_servers", ["project_id", "deleted_at"])
    op.execute(KEEP)
    op.execute(
        """CREATE TRIGGER keep_deleted_server BEFORE DELETE ON servers
           FOR EACH ROW EXECUTE FUNCTION keep_deleted_server()"""
    )
