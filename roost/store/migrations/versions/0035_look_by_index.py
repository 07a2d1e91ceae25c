"""Looking by the index from the first request on: a plan made while a table was small would go on reading all of it."""

from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    """Apply."""
    for function in ("roost_look", "roost_claim"):
        op.execute(f"ALTER FUNCTION {function}(jsonb) SET enable_seqscan = off")
