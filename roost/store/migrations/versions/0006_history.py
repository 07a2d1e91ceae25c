"""What has ended is found by its end, so that it can be forgotten."""

from roost.store import online

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Apply."""
    online.create_index("ix_actions_ended", "actions", "end_time", "parent_id IS NULL AND end_time IS NOT NULL")
    online.create_index("ix_events_timestamp", "events", '"timestamp"')
    online.create_index("ix_repairs_ended", "repairs", "updated_at", "status IN ('stopped', 'done', 'failed')")
