"""Projects, users, who has which role where, the tokens that are valid now, and who was guessed at."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from roost.store.tables.base import created_at, metadata

projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("description", sa.Text, nullable=False, server_default=""),
    sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true()),
    created_at(),
)

users = sa.Table(
    "users",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("password_hash", sa.Text, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true()),
    created_at(),
)

role_assignments = sa.Table(
    "role_assignments",
    metadata,
    sa.Column("user_id", sa.ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("project_id", sa.ForeignKey(projects.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("role", sa.Text, primary_key=True),
)

tokens = sa.Table(
    "tokens",
    metadata,
    # The token itself is never stored: whoever reads the table cannot use what is in it.
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("user_id", sa.ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("project_id", sa.ForeignKey(projects.c.id, ondelete="CASCADE")),
    sa.Column("system", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("methods", ARRAY(sa.Text), nullable=False),
    # Its own, and that of the first token in the chain from which it was made.
    sa.Column("audit_ids", ARRAY(sa.Text), nullable=False),
    sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False, index=True),
)

failed_sign_ins = sa.Table(
    "failed_sign_ins",
    metadata,
    # The digest of the user's id, or of a name that nobody has.
    sa.Column("key", sa.LargeBinary, primary_key=True),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False, index=True),
)
