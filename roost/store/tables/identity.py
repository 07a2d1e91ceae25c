"""Domains, projects, users, groups, who has which role where, the tokens that are valid now, and who was guessed at.

A user or a project has one name in the whole installation, whatever its domain. Roles are named by their names, which
are unique too, wherever one is granted.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from roost.store.tables.base import created_at, metadata


def _extra() -> sa.Column[Any]:
    """What else a caller wants to be kept, under its own names."""
    return sa.Column("extra", JSONB, nullable=False, server_default="{}")


def _tags() -> sa.Column[Any]:
    return sa.Column("tags", ARRAY(sa.Text), nullable=False, server_default="{}")


def _enabled() -> sa.Column[Any]:
    return sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true())


domains = sa.Table(
    "domains",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("description", sa.Text, nullable=False, server_default=""),
    _enabled(),
    _tags(),
    _extra(),
    created_at(),
)

projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("description", sa.Text, nullable=False, server_default=""),
    sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true()),
    created_at(),
    sa.Column("domain_id", sa.Text, nullable=False, server_default="default"),
    # The project above it; null for those that are right below their domain.
    sa.Column("parent_id", sa.Text),
    _tags(),
    _extra(),
)

users = sa.Table(
    "users",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("password_hash", sa.Text, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False, server_default=sa.true()),
    created_at(),
    sa.Column("domain_id", sa.Text, nullable=False, server_default="default"),
    sa.Column("default_project_id", sa.Text),
    sa.Column("description", sa.Text),
    _extra(),
)

groups = sa.Table(
    "groups",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("domain_id", sa.ForeignKey(domains.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("description", sa.Text, nullable=False, server_default=""),
    _extra(),
    created_at(),
    sa.UniqueConstraint("domain_id", "name"),
)

group_users = sa.Table(
    "group_users",
    metadata,
    sa.Column("group_id", sa.ForeignKey(groups.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("user_id", sa.ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True, index=True),
)

roles = sa.Table(
    "roles",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("description", sa.Text),
    # The five that Roost's own permissions name; they cannot be changed.
    sa.Column("fixed", sa.Boolean, nullable=False, server_default=sa.false()),
    _extra(),
    created_at(),
)

implied_roles = sa.Table(
    "implied_roles",
    metadata,
    sa.Column("prior", sa.ForeignKey(roles.c.name, ondelete="CASCADE", onupdate="CASCADE"), primary_key=True),
    sa.Column("implied", sa.ForeignKey(roles.c.name, ondelete="CASCADE", onupdate="CASCADE"), primary_key=True),
)

role_assignments = sa.Table(
    "role_assignments",
    metadata,
    sa.Column("user_id", sa.ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("project_id", sa.ForeignKey(projects.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("role", sa.Text, primary_key=True),
)

# Every other grant than that of a role in a project to a user: of a group, on a domain or the system, or inherited by
# the projects below.
grants = sa.Table(
    "grants",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("user_id", sa.ForeignKey(users.c.id, ondelete="CASCADE"), index=True),
    sa.Column("group_id", sa.ForeignKey(groups.c.id, ondelete="CASCADE"), index=True),
    sa.Column("project_id", sa.ForeignKey(projects.c.id, ondelete="CASCADE")),
    sa.Column("domain_id", sa.ForeignKey(domains.c.id, ondelete="CASCADE")),
    sa.Column("inherited", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("role", sa.ForeignKey(roles.c.name, ondelete="CASCADE", onupdate="CASCADE"), nullable=False),
    sa.CheckConstraint("(user_id IS NULL) <> (group_id IS NULL)", name="one_actor"),
    sa.CheckConstraint("project_id IS NULL OR domain_id IS NULL", name="one_target"),
    sa.Index(
        "uq_grants_all",
        *(sa.text(f"coalesce({name}, '')") for name in ("user_id", "group_id", "project_id", "domain_id")),
        "inherited",
        "role",
        unique=True,
    ),
)

application_credentials = sa.Table(
    "application_credentials",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("project_id", sa.ForeignKey(projects.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("secret_hash", sa.Text, nullable=False),
    sa.Column("description", sa.Text, nullable=False, server_default=""),
    sa.Column("expires_at", sa.DateTime(timezone=True)),
    sa.Column("unrestricted", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("roles", ARRAY(sa.Text), nullable=False),
    # The ids of its access rules; null where it has none and may do all that its roles allow.
    sa.Column("access_rules", ARRAY(sa.Text)),
    created_at(),
    sa.UniqueConstraint("user_id", "name"),
)

access_rules = sa.Table(
    "access_rules",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("method", sa.Text, nullable=False),
    sa.UniqueConstraint("user_id", "service", "path", "method"),
)

tokens = sa.Table(
    "tokens",
    metadata,
    # The token itself is never stored: what is in the table cannot be used.
    sa.Column("digest", sa.LargeBinary, primary_key=True),
    sa.Column("user_id", sa.ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("project_id", sa.ForeignKey(projects.c.id, ondelete="CASCADE")),
    sa.Column("system", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("methods", ARRAY(sa.Text), nullable=False),
    # Its own, and that of the first token in the chain from which it was made.
    sa.Column("audit_ids", ARRAY(sa.Text), nullable=False),
    sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False, index=True),
    sa.Column("domain_id", sa.Text),
    sa.Column("application_credential_id", sa.Text),
    sa.CheckConstraint("num_nonnulls(project_id, domain_id) + system::int <= 1", name="one_scope"),
)

# What the catalogue has besides Roost's own services, and what is kept about services for others to read.

regions = sa.Table(
    "regions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("description", sa.Text, nullable=False, server_default=""),
    sa.Column("parent_region_id", sa.ForeignKey("regions.id")),
    _extra(),
    created_at(),
)

services = sa.Table(
    "catalog_services",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("name", sa.Text),
    sa.Column("description", sa.Text),
    _enabled(),
    _extra(),
    created_at(),
)

endpoints = sa.Table(
    "catalog_endpoints",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # Of a stored service, or one of Roost's own.
    sa.Column("service_id", sa.Text, nullable=False, index=True),
    sa.Column("interface", sa.Text, nullable=False),
    sa.Column("region_id", sa.Text),
    sa.Column("url", sa.Text, nullable=False),
    _enabled(),
    _extra(),
    created_at(),
)

stored_policies = sa.Table(
    "stored_policies",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("blob", sa.Text, nullable=False),
    _extra(),
    created_at(),
)

registered_limits = sa.Table(
    "registered_limits",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("service_id", sa.Text, nullable=False),
    sa.Column("region_id", sa.Text),
    sa.Column("resource_name", sa.Text, nullable=False),
    sa.Column("default_limit", sa.Integer, nullable=False),
    sa.Column("description", sa.Text),
    created_at(),
)

limits = sa.Table(
    "limits",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("project_id", sa.ForeignKey(projects.c.id, ondelete="CASCADE")),
    sa.Column("domain_id", sa.ForeignKey(domains.c.id, ondelete="CASCADE")),
    sa.Column("registered_limit_id", sa.ForeignKey(registered_limits.c.id), nullable=False),
    sa.Column("resource_limit", sa.Integer, nullable=False),
    sa.Column("description", sa.Text),
    created_at(),
    sa.CheckConstraint("(project_id IS NULL) <> (domain_id IS NULL)", name="one_owner"),
)

failed_sign_ins = sa.Table(
    "failed_sign_ins",
    metadata,
    # The digest of the user's id, or of an unknown name.
    sa.Column("key", sa.LargeBinary, primary_key=True),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False, index=True),
)
