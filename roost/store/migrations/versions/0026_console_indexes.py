"""Indexes for the console: servers by name, and the history of a server and of the host that it left."""

from roost.store import online

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Apply."""
    online.create_index("ix_happenings_server_id", "happenings", "server_id, at", "server_id IS NOT NULL")
    online.create_index("ix_happenings_source", "happenings", "source, at", "source IS NOT NULL")
    online.create_index("ix_servers_name", "servers", "name, id")
