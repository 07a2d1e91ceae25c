"""A token has one scope."""

from alembic import op

revision = "0013"
down_revision = "0012"

closes = "A sign-in that named a project and the system got a token for both."
"""Such tokens end, and old programs that still issue them are refused: that is the point."""

_ONE_SCOPE = "num_nonnulls(project_id, domain_id) + system::int <= 1"


def upgrade() -> None:
    """Apply."""
    op.execute(f"ALTER TABLE tokens ADD CONSTRAINT ck_tokens_one_scope CHECK ({_ONE_SCOPE}) NOT VALID")
    op.execute(f"DELETE FROM tokens WHERE NOT ({_ONE_SCOPE})")
    op.execute("ALTER TABLE tokens VALIDATE CONSTRAINT ck_tokens_one_scope")
