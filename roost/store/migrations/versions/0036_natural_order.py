"""Indexes for lists in which names sort by the numbers in them, and of servers sorted by flavor."""

from roost.store import online

revision = "0036"
down_revision = "0035"

_PADDED = r"regexp_replace({}, '(\d+)', '00000000000000000000\1', 'g')"
_NATURAL = rf"left(regexp_replace({_PADDED}, '\d*(\d{{{{20}}}})', '\1', 'g'), 600)"


def upgrade() -> None:
    """Apply."""
    for table in ("servers", "server_groups", "hosts", "clusters", "nodes"):
        online.create_index(f"ix_{table}_natural", table, f"{_NATURAL.format('name')}, id")
    zone, name = _NATURAL.format("availability_zone"), _NATURAL.format("name")
    online.create_index("ix_hosts_zone_natural", "hosts", f"{zone}, {name}")
    online.create_index("ix_servers_flavor", "servers", "(flavor ->> 'name'), id")
