"""Load balancers of the embedded cloud, and the servers behind them."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from roost.store.tables.base import created_at, metadata

load_balancers = sa.Table(
    "load_balancers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("listener", sa.Text, nullable=False),
    sa.Column("pool", sa.Text, nullable=False),
    sa.Column("health_monitor", sa.Text),
    sa.Column("vip_address", sa.Text, nullable=False),
    sa.Column("spec", JSONB, nullable=False),
    created_at(),
)

load_balancer_members = sa.Table(
    "load_balancer_members",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("load_balancer_id", sa.ForeignKey(load_balancers.c.id, ondelete="CASCADE"), nullable=False),
    sa.Column("server_id", sa.Text, nullable=False, index=True),
    sa.Column("port", sa.Integer, nullable=False),
    sa.Column("weight", sa.Integer, nullable=False),
    sa.UniqueConstraint("load_balancer_id", "server_id", "port"),
)
