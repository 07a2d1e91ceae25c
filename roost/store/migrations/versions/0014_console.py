"""What the dashboard asks: search by words, servers in ERROR, what happened, and figures over time."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from roost.store import online

revision = "0014"
down_revision = "0013"

_SEPARATED = "array_to_tsvector(array_remove(string_to_array(translate(lower({0}), '-_/,', '    '), ' '), ''))"
_WORDS = {
    "servers": "name || ' ' || CAST(id AS text) || ' ' || project_id || ' ' "
    "|| translate(CAST(jsonb_path_query_array(addresses, '$.*[*].addr') AS text), '[]\"', '   ')",
    "server_groups": "name || ' ' || CAST(id AS text) || ' ' || project_id",
    "hosts": "name || ' ' || CAST(uuid AS text) || ' ' || address || ' ' || availability_zone",
    "clusters": "name || ' ' || id || ' ' || project_id",
    "nodes": "name || ' ' || id || ' ' || project_id",
}
_NAME_OF_HOST = "(SELECT name FROM hosts WHERE id = {}.host_id)"
_TRIGGERS = (
    (
        "servers_failed",
        "AFTER INSERT ON servers",
        "NEW.vm_state = 'error'",
        "INSERT INTO happenings (kind, project_id, server_id, server_name, group_id, detail) VALUES "
        "('failed', NEW.project_id, NEW.id, NEW.name, NEW.group_id, NEW.fault ->> 'message')",
    ),
    (
        "servers_changed",
        "AFTER UPDATE ON servers",
        "OLD.host_id IS DISTINCT FROM NEW.host_id OR (NEW.vm_state = 'error' AND OLD.vm_state <> 'error')",
        "INSERT INTO happenings (kind, project_id, server_id, server_name, group_id, host, source, detail) VALUES "
        "(CASE WHEN OLD.host_id IS DISTINCT FROM NEW.host_id THEN 'moved' ELSE 'failed' END, NEW.project_id, NEW.id, "
        f"NEW.name, NEW.group_id, {_NAME_OF_HOST.format('NEW')}, {_NAME_OF_HOST.format('OLD')}, "
        "CASE WHEN NEW.vm_state = 'error' THEN NEW.fault ->> 'message' END)",
    ),
    (
        "servers_deleted",
        "AFTER DELETE ON servers",
        None,
        "INSERT INTO happenings (kind, project_id, server_id, server_name, group_id, host) VALUES "
        f"('deleted', OLD.project_id, OLD.id, OLD.name, OLD.group_id, {_NAME_OF_HOST.format('OLD')})",
    ),
    (
        "violations_begun",
        "AFTER INSERT ON violations",
        None,
        "INSERT INTO happenings (kind, project_id, group_id, detail) SELECT 'rule_broken', project_id, id, NEW.policy "
        "FROM server_groups WHERE id = NEW.group_id",
    ),
    (
        "violations_ended",
        "AFTER DELETE ON violations",
        None,
        "INSERT INTO happenings (kind, project_id, group_id, detail) SELECT 'rule_mended', project_id, id, OLD.policy "
        "FROM server_groups WHERE id = OLD.group_id",
    ),
    (
        "hosts_changed",
        "AFTER UPDATE ON hosts",
        "OLD.enabled <> NEW.enabled OR OLD.forced_down <> NEW.forced_down",
        "INSERT INTO happenings (kind, host, detail) VALUES (CASE "
        "WHEN NEW.forced_down AND NOT OLD.forced_down THEN 'host_down' "
        "WHEN OLD.forced_down AND NOT NEW.forced_down THEN 'host_up' "
        "WHEN NEW.enabled THEN 'host_enabled' ELSE 'host_disabled' END, NEW.name, NEW.disabled_reason)",
    ),
)


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "happenings",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text()),
        sa.Column("server_id", postgresql.UUID(as_uuid=False)),
        sa.Column("server_name", sa.Text()),
        sa.Column("group_id", postgresql.UUID(as_uuid=False)),
        sa.Column("host", sa.Text()),
        sa.Column("source", sa.Text()),
        sa.Column("detail", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_happenings"),
    )
    op.create_index("ix_happenings_at", "happenings", ["at"])
    op.create_index("ix_happenings_project_id", "happenings", ["project_id", "at"])
    op.create_index(
        "ix_happenings_group_id", "happenings", ["group_id", "at"], postgresql_where=sa.text("group_id IS NOT NULL")
    )
    op.create_index("ix_happenings_host", "happenings", ["host", "at"], postgresql_where=sa.text("host IS NOT NULL"))
    op.create_table(
        "samples",
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("at", "name", name="pk_samples"),
    )
    for name, event, condition, statement in _TRIGGERS:
        result = "OLD" if "DELETE" in event else "NEW"
        op.execute(f"""
            CREATE FUNCTION roost_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                {statement};
                RETURN {result};
            END $$
        """)
        when = f" WHEN ({condition})" if condition else ""
        op.execute(f"CREATE TRIGGER roost_{name} {event} FOR EACH ROW{when} EXECUTE FUNCTION roost_{name}()")
    for table, words in _WORDS.items():
        online.create_index(f"ix_{table}_words", table, _SEPARATED.format(words), using="gin")
    online.create_index("ix_servers_failed", "servers", "number", "vm_state = 'error'")
