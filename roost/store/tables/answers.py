"""What answers leave behind: plans that may be applied, repairs under way, and since when rules are broken."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, UUID

from roost.store.tables.base import created_at, metadata, updated_at
from roost.store.tables.compute import hosts
from roost.store.tables.servers import server_groups

plans = sa.Table(
    "plans",
    metadata,
    sa.Column("number", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("group_id", sa.ForeignKey(server_groups.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("change", JSONB, nullable=False),
    # What decides between equals; the same is used when the plan is applied.
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("outcome", JSONB, nullable=False),
    created_at(),
)

# Places of an applied plan, held for servers that a nova-scheduler is still to place. Each server names its place by
# the token.
planned_places = sa.Table(
    "planned_places",
    metadata,
    sa.Column("token", UUID(as_uuid=False), primary_key=True, server_default=sa.func.gen_random_uuid()),
    sa.Column("group_id", sa.ForeignKey(server_groups.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("host_id", sa.ForeignKey(hosts.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("partition", sa.Integer),
    # The server that came for it: from then on the server itself counts.
    sa.Column("server_id", UUID(as_uuid=False)),
    # The plan failed: a server that comes all the same is deleted.
    sa.Column("given_up", sa.Boolean, nullable=False, server_default=sa.false()),
    created_at(),
)

repairs = sa.Table(
    "repairs",
    metadata,
    sa.Column("id", UUID(as_uuid=False), primary_key=True, server_default=sa.func.gen_random_uuid()),
    sa.Column("number", sa.BigInteger, sa.Identity(), nullable=False, unique=True),
    # A drain is a repair of no group: it has the place that is drained.
    sa.Column("group_id", sa.ForeignKey(server_groups.c.id, ondelete="CASCADE")),
    sa.Column("scope", sa.Text),
    sa.Column("identifier", sa.Text),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("paused", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("reason", sa.Text),
    sa.Column("fewest", sa.Boolean, nullable=False),
    sa.Column("repairs_all", sa.Boolean, nullable=False),
    sa.Column("max_moves", sa.Integer),
    sa.Column("max_parallel", sa.Integer, nullable=False, server_default="1"),
    sa.Column("cooldown", sa.Integer, nullable=False, server_default="0"),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    created_at(),
    updated_at(),
    # A group is repaired by one at a time.
    sa.Index("uq_repairs_group_id", "group_id", unique=True, postgresql_where="status IN ('running', 'stopping')"),
    sa.Index("ix_repairs_drains", "number", postgresql_where="group_id IS NULL"),
    sa.Index("ix_repairs_ended", "updated_at", postgresql_where="status IN ('stopped', 'done', 'failed')"),
    sa.CheckConstraint("status IN ('running', 'stopping', 'stopped', 'done', 'failed')", name="status"),
)

repair_moves = sa.Table(
    "repair_moves",
    metadata,
    sa.Column("repair_id", sa.ForeignKey(repairs.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("server_id", UUID(as_uuid=False), nullable=False),
    sa.Column("source_id", sa.ForeignKey(hosts.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("target_id", sa.ForeignKey(hosts.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("state", sa.Text, nullable=False, server_default="waiting"),
    sa.Column("reason", sa.Text),
    # Under which a Nova moves the server; none before it is known to have been asked.
    sa.Column("request_id", sa.Text),
    sa.Column("ended_at", sa.DateTime(timezone=True)),
    sa.CheckConstraint("state IN ('waiting', 'running', 'done', 'failed', 'skipped')", name="state"),
)

# The groups that are mended whenever an audit finds them broken, and within which budget.
continuous_repairs = sa.Table(
    "continuous_repairs",
    metadata,
    sa.Column("group_id", sa.ForeignKey(server_groups.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("max_moves", sa.Integer),
    sa.Column("max_parallel", sa.Integer, nullable=False, server_default="1"),
    sa.Column("cooldown", sa.Integer, nullable=False, server_default="0"),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
)

# Rules that were broken when the last audit looked, and since when.
violations = sa.Table(
    "violations",
    metadata,
    sa.Column("group_id", sa.ForeignKey(server_groups.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("breach", sa.Text, primary_key=True),
    sa.Column("policy", sa.Text, primary_key=True),
    # The real identifier of the aggregate; '' for members that are in none.
    sa.Column("aggregate", sa.Text, primary_key=True),
    sa.Column("excess", sa.Integer, nullable=False),
    sa.Column("since", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
)
