"""An index for the list of servers sorted by state."""

from roost.store import online

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    """Apply."""
    online.create_index("ix_servers_vm_state", "servers", "vm_state, id")
