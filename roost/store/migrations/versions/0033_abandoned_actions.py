"""An index for actions that were ended by force and whose engines have not let them go."""

from roost.store import online

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    """Apply."""
    online.create_index("ix_actions_abandoned", "actions", "owner", "status = 'CANCELLED' AND owner IS NOT NULL")
