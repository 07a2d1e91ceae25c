"""Answers: plans, repairs, and since when rules are broken."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "plans",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("group_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("change", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("outcome", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["server_groups.id"], name=op.f("fk_plans_group_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_plans")),
    )
    op.create_index(op.f("ix_plans_group_id"), "plans", ["group_id"])
    op.create_table(
        "repairs",
        sa.Column("id", sa.UUID(as_uuid=False), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("number", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("group_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("fewest", sa.Boolean(), nullable=False),
        sa.Column("repairs_all", sa.Boolean(), nullable=False),
        sa.Column("max_moves", sa.Integer(), nullable=True),
        sa.Column("max_parallel", sa.Integer(), server_default="1", nullable=False),
        sa.Column("cooldown", sa.Integer(), server_default="0", nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('running', 'stopping', 'stopped', 'done', 'failed')", name=op.f("ck_repairs_status")
        ),
        sa.ForeignKeyConstraint(
            ["group_id"], ["server_groups.id"], name=op.f("fk_repairs_group_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_repairs")),
        sa.UniqueConstraint("number", name=op.f("uq_repairs_number")),
    )
    op.create_index(
        "uq_repairs_group_id",
        "repairs",
        ["group_id"],
        unique=True,
        postgresql_where="status IN ('running', 'stopping')",
    )
    op.create_table(
        "repair_moves",
        sa.Column("repair_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("server_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=False),
        sa.Column("target_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), server_default="waiting", nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('waiting', 'running', 'done', 'failed', 'skipped')", name=op.f("ck_repair_moves_state")
        ),
        sa.ForeignKeyConstraint(
            ["repair_id"], ["repairs.id"], name=op.f("fk_repair_moves_repair_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["source_id"], ["hosts.id"], name=op.f("fk_repair_moves_source_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["target_id"], ["hosts.id"], name=op.f("fk_repair_moves_target_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("repair_id", "position", name=op.f("pk_repair_moves")),
    )
    op.create_table(
        "continuous_repairs",
        sa.Column("group_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("max_moves", sa.Integer(), nullable=True),
        sa.Column("max_parallel", sa.Integer(), server_default="1", nullable=False),
        sa.Column("cooldown", sa.Integer(), server_default="0", nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"], ["server_groups.id"], name=op.f("fk_continuous_repairs_group_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("group_id", name=op.f("pk_continuous_repairs")),
    )
    op.create_table(
        "violations",
        sa.Column("group_id", sa.UUID(as_uuid=False), nullable=False),
        sa.Column("breach", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("aggregate", sa.Text(), nullable=False),
        sa.Column("excess", sa.Integer(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_id"], ["server_groups.id"], name=op.f("fk_violations_group_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("group_id", "breach", "policy", "aggregate", name=op.f("pk_violations")),
    )
