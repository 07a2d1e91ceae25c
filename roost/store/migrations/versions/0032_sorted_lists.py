"""Indexes for lists that are sorted by a zone, or by the name of a group."""

from roost.store import online

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    """Apply."""
    online.create_index("ix_hosts_availability_zone_name", "hosts", "availability_zone, name")
    online.create_index("ix_server_groups_name", "server_groups", "name, id")
