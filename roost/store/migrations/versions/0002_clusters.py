"""Clusters, and the queue that carries out their actions."""

import sqlalchemy as sa
from alembic import op
from procrastinate.schema import SchemaManager
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "actions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=True),
        sa.Column("lock", sa.Text(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("part", sa.Integer(), server_default="0", nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("interval", sa.Integer(), server_default="-1", nullable=False),
        sa.Column("timeout", sa.Integer(), nullable=False),
        sa.Column("start_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("wake_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("status_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("control", sa.Text(), nullable=True),
        sa.Column("inputs", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("outputs", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("is_admin", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("plan", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), server_default="default", nullable=False),
        sa.ForeignKeyConstraint(["parent_id"], ["actions.id"], name=op.f("fk_actions_parent_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_actions")),
    )
    op.create_index(op.f("ix_actions_cluster_id"), "actions", ["cluster_id"], unique=False)
    op.create_index("ix_actions_id_prefix", "actions", ["id"], unique=False, postgresql_ops={"id": "text_pattern_ops"})
    op.create_index(op.f("ix_actions_parent_id_part"), "actions", ["parent_id", "part"], unique=False)
    op.create_index(
        op.f("ix_actions_project_id_created_at_id"), "actions", ["project_id", "created_at", "id"], unique=False
    )
    op.create_index(op.f("ix_actions_target"), "actions", ["target"], unique=False)
    op.create_index(
        "ix_actions_unfinished_lock",
        "actions",
        ["lock", "sequence"],
        unique=False,
        postgresql_where=sa.text(
            "status IN ('INIT', 'READY', 'RUNNING', 'WAITING', 'WAITING_LIFECYCLE_COMPLETION', 'SUSPENDED')"
        ),
    )
    op.create_index(
        "ix_actions_unfinished_target",
        "actions",
        ["target"],
        unique=False,
        postgresql_where=sa.text(
            "status IN ('INIT', 'READY', 'RUNNING', 'WAITING', 'WAITING_LIFECYCLE_COMPLETION', 'SUSPENDED')"
        ),
    )
    op.create_index(
        "ix_actions_wake_at", "actions", ["wake_at"], unique=False, postgresql_where=sa.text("wake_at IS NOT NULL")
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("timestamp", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("oid", sa.Text(), nullable=False),
        sa.Column("oname", sa.Text(), nullable=False),
        sa.Column("otype", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=True),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("status_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("meta_data", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), server_default="default", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_cluster_id_timestamp"), "events", ["cluster_id", "timestamp"], unique=False)
    op.create_index("ix_events_id_prefix", "events", ["id"], unique=False, postgresql_ops={"id": "text_pattern_ops"})
    op.create_index(op.f("ix_events_oid"), "events", ["oid"], unique=False)
    op.create_index(
        op.f("ix_events_project_id_timestamp_id"), "events", ["project_id", "timestamp", "id"], unique=False
    )
    op.create_table(
        "policies",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), server_default="default", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policies")),
    )
    op.create_index(
        "ix_policies_id_prefix", "policies", ["id"], unique=False, postgresql_ops={"id": "text_pattern_ops"}
    )
    op.create_index(op.f("ix_policies_project_id_name"), "policies", ["project_id", "name"], unique=False)
    op.create_table(
        "profiles",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), server_default="default", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profiles")),
    )
    op.create_index(
        "ix_profiles_id_prefix", "profiles", ["id"], unique=False, postgresql_ops={"id": "text_pattern_ops"}
    )
    op.create_index(op.f("ix_profiles_project_id_name"), "profiles", ["project_id", "name"], unique=False)
    op.create_table(
        "services",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("binary", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("disabled", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_services")),
    )
    op.create_table(
        "clusters",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("profile_id", sa.Text(), nullable=False),
        sa.Column("min_size", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_size", sa.Integer(), server_default="-1", nullable=False),
        sa.Column("desired_capacity", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_index", sa.Integer(), server_default="1", nullable=False),
        sa.Column("timeout", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("status_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("dependents", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("config", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("init_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), server_default="default", nullable=False),
        sa.ForeignKeyConstraint(["profile_id"], ["profiles.id"], name=op.f("fk_clusters_profile_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clusters")),
    )
    op.create_index(
        "ix_clusters_id_prefix", "clusters", ["id"], unique=False, postgresql_ops={"id": "text_pattern_ops"}
    )
    op.create_index(op.f("ix_clusters_profile_id"), "clusters", ["profile_id"], unique=False)
    op.create_index(
        op.f("ix_clusters_project_id_init_at_id"), "clusters", ["project_id", "init_at", "id"], unique=False
    )
    op.create_index(op.f("ix_clusters_project_id_name"), "clusters", ["project_id", "name"], unique=False)
    op.create_table(
        "cluster_policies",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("policy_id", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("last_op", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_cluster_policies_cluster_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["policy_id"], ["policies.id"], name=op.f("fk_cluster_policies_policy_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster_policies")),
        sa.UniqueConstraint("cluster_id", "policy_id", name=op.f("uq_cluster_policies_cluster_id_policy_id")),
    )
    op.create_index(op.f("ix_cluster_policies_policy_id"), "cluster_policies", ["policy_id"], unique=False)
    op.create_table(
        "health_registry",
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("policy_id", sa.Text(), nullable=False),
        sa.Column("check_type", sa.Text(), nullable=False),
        sa.Column("interval", sa.Integer(), nullable=False),
        sa.Column("params", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_health_registry_cluster_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["policy_id"], ["policies.id"], name=op.f("fk_health_registry_policy_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("cluster_id", "policy_id", name=op.f("pk_health_registry")),
    )
    op.create_index(op.f("ix_health_registry_due_at"), "health_registry", ["due_at"], unique=False)
    op.create_table(
        "nodes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("profile_id", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=True),
        sa.Column("physical_id", sa.Text(), nullable=True),
        sa.Column("index", sa.Integer(), server_default="-1", nullable=False),
        sa.Column("role", sa.Text(), server_default="", nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("status_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("data", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("dependents", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("tainted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("init_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), server_default="default", nullable=False),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name=op.f("fk_nodes_cluster_id")),
        sa.ForeignKeyConstraint(["profile_id"], ["profiles.id"], name=op.f("fk_nodes_profile_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
    )
    op.create_index(op.f("ix_nodes_cluster_id_index"), "nodes", ["cluster_id", "index"], unique=False)
    op.create_index("ix_nodes_id_prefix", "nodes", ["id"], unique=False, postgresql_ops={"id": "text_pattern_ops"})
    op.create_index(op.f("ix_nodes_physical_id"), "nodes", ["physical_id"], unique=False)
    op.create_index(op.f("ix_nodes_profile_id"), "nodes", ["profile_id"], unique=False)
    op.create_index(op.f("ix_nodes_project_id_init_at_id"), "nodes", ["project_id", "init_at", "id"], unique=False)
    op.create_index(op.f("ix_nodes_project_id_name"), "nodes", ["project_id", "name"], unique=False)
    op.create_table(
        "receivers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=True),
        sa.Column("action", sa.Text(), nullable=True),
        sa.Column("actor", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("params", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("channel", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("domain_id", sa.Text(), server_default="default", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name=op.f("fk_receivers_cluster_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_receivers")),
    )
    op.create_index(op.f("ix_receivers_cluster_id"), "receivers", ["cluster_id"], unique=False)
    op.create_index(
        "ix_receivers_id_prefix", "receivers", ["id"], unique=False, postgresql_ops={"id": "text_pattern_ops"}
    )
    op.create_index(op.f("ix_receivers_project_id_name"), "receivers", ["project_id", "name"], unique=False)
    op.create_table(
        "load_balancers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("listener", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("health_monitor", sa.Text(), nullable=True),
        sa.Column("vip_address", sa.Text(), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_load_balancers")),
    )
    op.create_index(op.f("ix_load_balancers_project_id"), "load_balancers", ["project_id"], unique=False)
    op.create_table(
        "load_balancer_members",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("load_balancer_id", sa.Text(), nullable=False),
        sa.Column("server_id", sa.Text(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["load_balancer_id"],
            ["load_balancers.id"],
            name=op.f("fk_load_balancer_members_load_balancer_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_load_balancer_members")),
        sa.UniqueConstraint(
            "load_balancer_id",
            "server_id",
            "port",
            name=op.f("uq_load_balancer_members_load_balancer_id_server_id_port"),
        ),
    )
    op.create_index(op.f("ix_load_balancer_members_server_id"), "load_balancer_members", ["server_id"], unique=False)
    op.get_bind().exec_driver_sql(SchemaManager.get_schema().replace("%", "%%"))
