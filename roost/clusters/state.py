"""A cluster as it stands: its row, its profile, its members and what governs it, read once for an action."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters.policies.base import ClusterView, NodeView, ProfileView
from roost.clusters.sizes import Sizes
from roost.store.tables.clusters import cluster_policies, clusters, nodes, policies, profiles

MEMBER_COLUMNS = (
    nodes.c.id,
    nodes.c.name,
    nodes.c.index,
    nodes.c.role,
    nodes.c.status,
    nodes.c.created_at,
    nodes.c.profile_id,
    nodes.c.physical_id,
    nodes.c.tainted,
    nodes.c.data,
)


@dataclass(frozen=True, slots=True)
class Binding:
    """A policy on a cluster."""

    id: str
    policy: Mapping[str, Any]
    """The row of the policy."""
    enabled: bool
    priority: int
    data: Mapping[str, Any]
    last_op: datetime | None
    created_at: datetime


async def cluster_row(connection: AsyncConnection, cluster_id: str, *, lock: bool = False) -> sa.Row[Any] | None:
    """The cluster, if it is still there."""
    query = sa.select(clusters).where(clusters.c.id == cluster_id)
    return (await connection.execute(query.with_for_update() if lock else query)).one_or_none()


async def members(connection: AsyncConnection, cluster_id: str) -> tuple[NodeView, ...]:
    """The nodes of a cluster, in the order of their indexes."""
    columns = (*MEMBER_COLUMNS[:-1], sa.cast(nodes.c.data, sa.Text))
    query = sa.select(*columns).where(nodes.c.cluster_id == cluster_id).order_by(nodes.c.index)
    rows = (await connection.execute(query)).all()
    # Nodes of a cluster have few different data between them; reading each of ten thousand would take most of the time.
    texts = dict.fromkeys([row[-1] for row in rows])
    data = dict(zip(texts, json.loads(f"[{','.join(texts)}]"), strict=True))
    make = NodeView._make
    return tuple([make((*others, data[text])) for *others, text in rows])


async def nodes_by_id(connection: AsyncConnection, node_ids: Sequence[str]) -> dict[str, NodeView]:
    """These nodes, as far as they exist."""
    query = sa.select(*MEMBER_COLUMNS).where(nodes.c.id == sa.any_(sa.bindparam("ids", list(node_ids))))
    return {row.id: NodeView._make(row) for row in (await connection.execute(query)).all()}


async def count_members(connection: AsyncConnection, cluster_id: str) -> int:
    """How many nodes a cluster has, whatever their state."""
    query = sa.select(sa.func.count()).select_from(nodes).where(nodes.c.cluster_id == cluster_id)
    return int(await connection.scalar(query) or 0)


async def bindings(connection: AsyncConnection, cluster_id: str) -> list[Binding]:
    """The policies on a cluster, in the order in which they were attached."""
    query = (
        sa.select(cluster_policies, policies)
        .join(policies, policies.c.id == cluster_policies.c.policy_id)
        .where(cluster_policies.c.cluster_id == cluster_id)
        .order_by(cluster_policies.c.created_at, cluster_policies.c.id)
    )
    return [_binding(row) for row in (await connection.execute(query)).all()]


def _binding(row: sa.Row[Any]) -> Binding:
    found = row._mapping
    own = cluster_policies.c
    return Binding(
        id=found[own.id],
        policy={column.name: found[column] for column in policies.c},
        enabled=found[own.enabled],
        priority=found[own.priority],
        data=found[own.data],
        last_op=found[own.last_op],
        created_at=found[own.created_at],
    )


async def profile_rows(connection: AsyncConnection, profile_ids: Sequence[str]) -> dict[str, sa.Row[Any]]:
    """The profiles of these ids."""
    query = sa.select(profiles).where(profiles.c.id == sa.any_(sa.bindparam("ids", sorted(set(profile_ids)))))
    return {row.id: row for row in (await connection.execute(query)).all()}


def profile_view(row: sa.Row[Any]) -> ProfileView:
    """A profile as policies see it."""
    return ProfileView(row.id, row.name, row.type, row.spec.get("properties") or {}, row.created_at)


def cluster_view(row: sa.Row[Any], nodes_: tuple[NodeView, ...], profiles_: Mapping[str, sa.Row[Any]]) -> ClusterView:
    """A cluster as policies see it."""
    views = {key: profile_view(profile) for key, profile in profiles_.items()}
    return ClusterView(
        id=row.id,
        name=row.name,
        project=row.project_id,
        user=row.user_id,
        profile=views[row.profile_id],
        min_size=row.min_size,
        max_size=row.max_size,
        desired_capacity=row.desired_capacity,
        nodes=nodes_,
        config=row.config,
        data=row.data,
        profiles=views,
    )


def sizes(row: sa.Row[Any]) -> Sizes:
    """The sizes of a cluster."""
    return Sizes(row.min_size, row.max_size, row.desired_capacity)


def health_of(bounds: Sizes, active: int, operation: str) -> tuple[str, str]:
    """The status of a cluster with that many active nodes, and the reason to give for it."""
    if active < bounds.min_size:
        return "ERROR", f"{operation}: number of active nodes is below min_size ({bounds.min_size})."
    if active < bounds.desired_capacity:
        reason = f"{operation}: number of active nodes is below desired_capacity ({bounds.desired_capacity})."
        return "WARNING", reason
    if bounds.max_size < 0 or active <= bounds.max_size:
        reason = f"{operation}: number of active nodes is equal or above desired_capacity ({bounds.desired_capacity})."
        return "ACTIVE", reason
    return "WARNING", f"{operation}: number of active nodes is above max_size ({bounds.max_size})."
