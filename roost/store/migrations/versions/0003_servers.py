"""Servers."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_table(
        "project_usage",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("instances", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cores", sa.Integer(), server_default="0", nullable=False),
        sa.Column("ram", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("server_groups", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("project_id", name=op.f("pk_project_usage")),
    )
    op.create_table(
        "server_groups",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("number", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_server_groups")),
        sa.UniqueConstraint("number", name=op.f("uq_server_groups_number")),
    )
    op.create_index("ix_server_groups_project_id_number", "server_groups", ["project_id", "number"], unique=False)
    op.create_table(
        "servers",
        sa.Column("id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("number", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("flavor", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("image_id", sa.Text(), nullable=True),
        sa.Column("key_name", sa.Text(), nullable=True),
        sa.Column("user_data", sa.Text(), nullable=True),
        sa.Column("config_drive", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("tags", postgresql.JSONB(astext_type=sa.Text()), server_default="[]", nullable=False),
        sa.Column("addresses", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("hints", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("zone", sa.Text(), nullable=True),
        sa.Column("reservation_id", sa.Text(), nullable=False),
        sa.Column("launch_index", sa.Integer(), server_default="0", nullable=False),
        sa.Column("host_id", sa.Integer(), nullable=True),
        sa.Column("group_id", sa.UUID(as_uuid=False), nullable=True),
        sa.Column("vm_state", sa.Text(), nullable=False),
        sa.Column("task_state", sa.Text(), nullable=True),
        sa.Column("power_state", sa.Integer(), server_default="0", nullable=False),
        sa.Column("locked", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("locked_reason", sa.Text(), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("step", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("fault", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("explanation", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("client_token", sa.Text(), nullable=True),
        sa.Column("launched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["group_id"], ["server_groups.id"], name=op.f("fk_servers_group_id"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_servers_host_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_servers")),
        sa.UniqueConstraint("client_token", name=op.f("uq_servers_client_token")),
        sa.UniqueConstraint("number", name=op.f("uq_servers_number")),
    )
    op.create_index("ix_servers_due_at", "servers", ["due_at"], unique=False, postgresql_where="due_at IS NOT NULL")
    op.create_index(op.f("ix_servers_group_id"), "servers", ["group_id"], unique=False)
    op.create_index(op.f("ix_servers_host_id"), "servers", ["host_id"], unique=False)
    op.create_index("ix_servers_project_id_number", "servers", ["project_id", "number"], unique=False)
    op.create_index("ix_servers_reservation_id", "servers", ["reservation_id"], unique=False)
    op.create_table(
        "claims",
        sa.Column("server_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("host_id", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["hosts.id"], name=op.f("fk_claims_host_id")),
        sa.ForeignKeyConstraint(["server_id"], ["servers.id"], name=op.f("fk_claims_server_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("server_id", "host_id", name=op.f("pk_claims")),
    )
    op.create_index(op.f("ix_claims_host_id"), "claims", ["host_id"], unique=False)
    op.create_table(
        "instance_actions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("server_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("start_time", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finish_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["server_id"], ["servers.id"], name=op.f("fk_instance_actions_server_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_actions")),
    )
    op.create_index(op.f("ix_instance_actions_server_id"), "instance_actions", ["server_id"], unique=False)
    op.create_table(
        "migrations",
        sa.Column("id", sa.Integer(), sa.Identity(always=False), nullable=False),
        sa.Column("uuid", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("server_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("destination", sa.Text(), nullable=True),
        sa.Column("old_flavor_id", sa.Text(), nullable=True),
        sa.Column("new_flavor_id", sa.Text(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["server_id"], ["servers.id"], name=op.f("fk_migrations_server_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_migrations")),
    )
    op.create_index(op.f("ix_migrations_server_id"), "migrations", ["server_id"], unique=False)
    op.create_table(
        "server_group_policies",
        sa.Column("group_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.Integer(), nullable=True),
        sa.Column("builtin_scope", sa.Text(), nullable=True),
        sa.Column("aggregate_id", sa.Integer(), nullable=True),
        sa.Column("zone", sa.Text(), nullable=True),
        sa.Column("rules", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.CheckConstraint(
            "builtin_scope IN ('host', 'availability_zone')", name=op.f("ck_server_group_policies_builtin")
        ),
        sa.CheckConstraint(
            "zone IS NULL OR builtin_scope = 'availability_zone'", name=op.f("ck_server_group_policies_zone")
        ),
        sa.CheckConstraint(
            "(scope_id IS NULL) <> (builtin_scope IS NULL)", name=op.f("ck_server_group_policies_one_scope")
        ),
        sa.CheckConstraint(
            "aggregate_id IS NULL OR scope_id IS NOT NULL", name=op.f("ck_server_group_policies_aggregate")
        ),
        sa.ForeignKeyConstraint(
            ["aggregate_id"], ["aggregates.id"], name=op.f("fk_server_group_policies_aggregate_id")
        ),
        sa.ForeignKeyConstraint(
            ["group_id"], ["server_groups.id"], name=op.f("fk_server_group_policies_group_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name=op.f("fk_server_group_policies_scope_id")),
        sa.PrimaryKeyConstraint("group_id", "position", name=op.f("pk_server_group_policies")),
    )
    op.create_index(
        op.f("ix_server_group_policies_aggregate_id"), "server_group_policies", ["aggregate_id"], unique=False
    )
    op.create_index(op.f("ix_server_group_policies_scope_id"), "server_group_policies", ["scope_id"], unique=False)
