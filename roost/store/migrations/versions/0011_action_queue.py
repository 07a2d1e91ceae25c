"""What is left to do, by project: the table of actions is the queue from which engines take their work."""

from roost.store.online import create_index

revision = "0011"
down_revision = "0010"

UNFINISHED = "'INIT', 'READY', 'RUNNING', 'WAITING', 'WAITING_LIFECYCLE_COMPLETION', 'SUSPENDED'"


def upgrade() -> None:
    """Apply."""
    create_index(
        "ix_actions_open", "actions", "project_id, sequence", f"parent_id IS NULL AND status IN ({UNFINISHED})"
    )
