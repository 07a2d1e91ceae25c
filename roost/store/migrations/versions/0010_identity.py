"""Domains, groups, roles, application credentials, and what the catalogue lists beside Roost's own services."""

import itertools
import uuid

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "catalog_endpoints",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("service_id", sa.Text(), nullable=False),
        sa.Column("interface", sa.Text(), nullable=False),
        sa.Column("region_id", sa.Text(), nullable=True),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("extra", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_catalog_endpoints")),
    )
    op.create_index(op.f("ix_catalog_endpoints_service_id"), "catalog_endpoints", ["service_id"], unique=False)
    op.create_table(
        "catalog_services",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("extra", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_catalog_services")),
    )
    op.create_table(
        "domains",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("extra", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_domains")),
        sa.UniqueConstraint("name", name=op.f("uq_domains_name")),
    )
    op.create_table(
        "regions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("parent_region_id", sa.Text(), nullable=True),
        sa.Column("extra", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["parent_region_id"], ["regions.id"], name=op.f("fk_regions_parent_region_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_regions")),
    )
    op.create_table(
        "registered_limits",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("service_id", sa.Text(), nullable=False),
        sa.Column("region_id", sa.Text(), nullable=True),
        sa.Column("resource_name", sa.Text(), nullable=False),
        sa.Column("default_limit", sa.Integer(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_registered_limits")),
    )
    op.create_table(
        "roles",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("fixed", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("extra", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_roles")),
        sa.UniqueConstraint("name", name=op.f("uq_roles_name")),
    )
    op.create_table(
        "access_rules",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("service", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_access_rules_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_access_rules")),
        sa.UniqueConstraint(
            "user_id", "service", "path", "method", name=op.f("uq_access_rules_user_id_service_path_method")
        ),
    )
    op.create_table(
        "application_credentials",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unrestricted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("roles", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("access_rules", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_application_credentials_project_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_application_credentials_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_application_credentials")),
        sa.UniqueConstraint("user_id", "name", name=op.f("uq_application_credentials_user_id_name")),
    )
    op.create_table(
        "groups",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("extra", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"], name=op.f("fk_groups_domain_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_groups")),
        sa.UniqueConstraint("domain_id", "name", name=op.f("uq_groups_domain_id_name")),
    )
    op.create_table(
        "implied_roles",
        sa.Column("prior", sa.Text(), nullable=False),
        sa.Column("implied", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["implied"], ["roles.name"], name=op.f("fk_implied_roles_implied"), onupdate="CASCADE", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["prior"], ["roles.name"], name=op.f("fk_implied_roles_prior"), onupdate="CASCADE", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("prior", "implied", name=op.f("pk_implied_roles")),
    )
    op.create_table(
        "limits",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("domain_id", sa.Text(), nullable=True),
        sa.Column("registered_limit_id", sa.Text(), nullable=False),
        sa.Column("resource_limit", sa.Integer(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("(project_id IS NULL) <> (domain_id IS NULL)", name=op.f("ck_limits_one_owner")),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"], name=op.f("fk_limits_domain_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_limits_project_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["registered_limit_id"], ["registered_limits.id"], name=op.f("fk_limits_registered_limit_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_limits")),
    )
    op.create_table(
        "grants",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("group_id", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Text(), nullable=True),
        sa.Column("domain_id", sa.Text(), nullable=True),
        sa.Column("inherited", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.CheckConstraint("(user_id IS NULL) <> (group_id IS NULL)", name=op.f("ck_grants_one_actor")),
        sa.CheckConstraint("project_id IS NULL OR domain_id IS NULL", name=op.f("ck_grants_one_target")),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"], name=op.f("fk_grants_domain_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name=op.f("fk_grants_group_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_grants_project_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["role"], ["roles.name"], name=op.f("fk_grants_role"), onupdate="CASCADE", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_grants_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grants")),
    )
    op.create_index(op.f("ix_grants_group_id"), "grants", ["group_id"], unique=False)
    op.create_index(op.f("ix_grants_user_id"), "grants", ["user_id"], unique=False)
    op.create_index(
        "uq_grants_all",
        "grants",
        [
            sa.literal_column("coalesce(user_id, '')"),
            sa.literal_column("coalesce(group_id, '')"),
            sa.literal_column("coalesce(project_id, '')"),
            sa.literal_column("coalesce(domain_id, '')"),
            "inherited",
            "role",
        ],
        unique=True,
    )
    op.create_table(
        "group_users",
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name=op.f("fk_group_users_group_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_group_users_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("group_id", "user_id", name=op.f("pk_group_users")),
    )
    op.create_index(op.f("ix_group_users_user_id"), "group_users", ["user_id"], unique=False)
    op.add_column("projects", sa.Column("domain_id", sa.Text(), server_default="default", nullable=False))
    op.add_column("projects", sa.Column("parent_id", sa.Text(), nullable=True))
    op.add_column("projects", sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False))
    op.add_column(
        "projects", sa.Column("extra", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False)
    )
    op.add_column("tokens", sa.Column("domain_id", sa.Text(), nullable=True))
    op.add_column("tokens", sa.Column("application_credential_id", sa.Text(), nullable=True))
    op.add_column("users", sa.Column("domain_id", sa.Text(), server_default="default", nullable=False))
    op.add_column("users", sa.Column("default_project_id", sa.Text(), nullable=True))
    op.add_column("users", sa.Column("description", sa.Text(), nullable=True))
    op.add_column(
        "users", sa.Column("extra", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False)
    )
    op.execute("INSERT INTO domains (id, name, description) VALUES ('default', 'Default', 'The default domain')")
    # The ids of these roles follow from their names, and are the same in every installation.
    fixed = ("admin", "manager", "member", "reader", "service")
    ids = {name: uuid.uuid5(uuid.NAMESPACE_OID, f"roost role {name}").hex for name in fixed}
    for name in fixed:
        op.execute(f"INSERT INTO roles (id, name, fixed) VALUES ('{ids[name]}', '{name}', true)")
    for prior, implied in itertools.pairwise(fixed[:4]):
        op.execute(f"INSERT INTO implied_roles (prior, implied) VALUES ('{prior}', '{implied}')")
