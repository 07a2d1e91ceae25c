"""An index for the feed: creates by the moment in which they began."""

from roost.store import online

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    """Apply."""
    online.create_index("ix_instance_actions_create", "instance_actions", "start_time", "action = 'create'")
