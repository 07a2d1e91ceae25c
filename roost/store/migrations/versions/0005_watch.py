"""Notify watchers of changes, in the transaction that makes them."""

from alembic import op

revision = "0005"
down_revision = "0004"

# The table, what its changes are called, and the column of the ids to send.
_TABLES = (
    ("servers", "servers", "host_id"),
    ("server_groups", "groups", "id"),
    ("clusters", "clusters", "id"),
    ("nodes", "clusters", "cluster_id"),
    ("actions", "clusters", "cluster_id"),
    ("events", "clusters", "cluster_id"),
)
_ROWS = {
    "INSERT": ("REFERENCING NEW TABLE AS came", "came"),
    "UPDATE": (
        "REFERENCING OLD TABLE AS went NEW TABLE AS came",
        "(SELECT project_id, {ids} FROM came UNION SELECT project_id, {ids} FROM went)",
    ),
    "DELETE": ("REFERENCING OLD TABLE AS went", "went"),
}
# A notification holds 8,000 bytes; longer lists are sent as "any of them".
_TELL = """
    CREATE FUNCTION roost_tell(kind text, project text, ids text) RETURNS void LANGUAGE sql AS $$
        SELECT pg_notify('roost_watch', kind || ':' || project || ':' ||
            CASE WHEN length(ids) > 7000 THEN '*' ELSE coalesce(ids, '') END)
    $$
"""
_TELL_HOSTS = """
    CREATE FUNCTION roost_tell_hosts() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM roost_tell('hosts', '', array_to_string(NEW.host_ids, ','));
        RETURN NULL;
    END $$
"""


def upgrade() -> None:
    """Apply."""
    op.execute(_TELL)
    for table, kind, ids in _TABLES:
        for verb, (rows, source) in _ROWS.items():
            name = f"roost_tell_{table}_{verb.lower()}"
            op.execute(f"""
                CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    PERFORM roost_tell('{kind}', project_id, string_agg(DISTINCT CAST({ids} AS text), ','))
                    FROM {source.format(ids=ids)} AS changed GROUP BY project_id;
                    RETURN NULL;
                END $$
            """)
            op.execute(
                f"CREATE TRIGGER {name} AFTER {verb} ON {table} {rows} FOR EACH STATEMENT EXECUTE FUNCTION {name}()"
            )
    op.execute(_TELL_HOSTS)
    op.execute(
        "CREATE TRIGGER roost_tell_hosts AFTER INSERT ON fleet_changes FOR EACH ROW EXECUTE FUNCTION roost_tell_hosts()"
    )
