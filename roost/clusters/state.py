"""A cluster as it stands: its row, its profile, its members and the policies on it, read once for an action."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters.policies.base import ClusterView, NodeView, ProfileView
from roost.clusters.records import CLUSTERS, PROFILES, ClusterRecord
from roost.clusters.sizes import Sizes
from roost.clusters.spec_type import SpecRow, spec_columns
from roost.clusters.states import ClusterStatus
from roost.store.tables.clusters import cluster_policies, clusters, nodes, policies, profiles

MEMBER_COLUMNS = tuple(nodes.c[name] for name in NodeView._fields)


@dataclass(frozen=True, slots=True)
class Binding:
    """A policy on a cluster."""

    id: str
    policy: SpecRow
    enabled: bool
    priority: int
    data: Mapping[str, Any]
    last_op: datetime | None
    created_at: datetime


def among(column: sa.Column[Any], values: Iterable[str]) -> sa.ColumnElement[bool]:
    """Whether a column has one of these values, in one parameter however many they are."""
    return column == sa.any_(sa.bindparam(None, list(values), type_=sa.ARRAY(sa.Text)))


async def clusters_by_id(
    connection: AsyncConnection, cluster_ids: Iterable[str], *, lock: bool = False
) -> dict[str, ClusterRecord]:
    """Those of these clusters that are still there; locked, in an order that all share, if asked."""
    wanted = among(clusters.c.id, cluster_ids)
    return {each.id: each for each in await CLUSTERS.read(connection, wanted, order=clusters.c.id, lock=lock)}


async def members_of(connection: AsyncConnection, cluster_ids: Iterable[str]) -> dict[str, tuple[NodeView, ...]]:
    """The nodes of each cluster, in the order of their indexes."""
    columns = (nodes.c.cluster_id, *MEMBER_COLUMNS[:-1], sa.cast(nodes.c.data, sa.Text))
    query = sa.select(*columns).where(among(nodes.c.cluster_id, cluster_ids)).order_by(nodes.c.index)
    rows = (await connection.execute(query)).all()
    # The nodes of a cluster share few different data; parsing the same text ten thousand times would take most of the
    # time.
    texts = dict.fromkeys([row[-1] for row in rows])
    data = dict(zip(texts, json.loads(f"[{','.join(texts)}]"), strict=True))
    make = NodeView._make
    found: dict[str, list[NodeView]] = {cluster_id: [] for cluster_id in cluster_ids}
    for cluster_id, *others, text in rows:
        found[cluster_id].append(make((*others, data[text])))
    return {cluster_id: tuple(some) for cluster_id, some in found.items()}


async def members(connection: AsyncConnection, cluster_id: str) -> tuple[NodeView, ...]:
    """The nodes of a cluster, in the order of their indexes."""
    return (await members_of(connection, [cluster_id]))[cluster_id]


async def nodes_by_id(connection: AsyncConnection, node_ids: Iterable[str]) -> dict[str, NodeView]:
    """These nodes, as far as they exist."""
    query = sa.select(*MEMBER_COLUMNS).where(among(nodes.c.id, node_ids))
    return {row.id: NodeView._make(row) for row in await connection.execute(query)}


async def member_counts(connection: AsyncConnection, cluster_ids: Iterable[str]) -> dict[str, int]:
    """How many nodes each cluster has, whatever their state; clusters without nodes are left out."""
    count = sa.select(nodes.c.cluster_id, sa.func.count()).where(among(nodes.c.cluster_id, cluster_ids))
    return {row[0]: row[1] for row in await connection.execute(count.group_by(nodes.c.cluster_id))}


async def count_members(connection: AsyncConnection, cluster_id: str) -> int:
    """How many nodes a cluster has, whatever their state."""
    return (await member_counts(connection, [cluster_id])).get(cluster_id, 0)


async def bindings_of(connection: AsyncConnection, cluster_ids: Iterable[str]) -> dict[str, list[Binding]]:
    """The policies on each cluster, in the order in which they were attached."""
    query = (
        sa.select(cluster_policies, policies)
        .join(policies, policies.c.id == cluster_policies.c.policy_id)
        .where(among(cluster_policies.c.cluster_id, cluster_ids))
        .order_by(cluster_policies.c.created_at, cluster_policies.c.id)
    )
    found: dict[str, list[Binding]] = {cluster_id: [] for cluster_id in cluster_ids}
    for row in await connection.execute(query):
        found[row._mapping[cluster_policies.c.cluster_id]].append(_binding(row._mapping))
    return found


async def bindings(connection: AsyncConnection, cluster_id: str) -> list[Binding]:
    """The policies on a cluster, in the order in which they were attached."""
    return (await bindings_of(connection, [cluster_id]))[cluster_id]


def _binding(found: Mapping[Any, Any]) -> Binding:
    own = cluster_policies.c
    return Binding(
        id=found[own.id],
        policy=SpecRow(*(found[policies.c[name]] for name in spec_columns("data"))),
        enabled=found[own.enabled],
        priority=found[own.priority],
        data=found[own.data],
        last_op=found[own.last_op],
        created_at=found[own.created_at],
    )


async def profiles_by_id(connection: AsyncConnection, profile_ids: Iterable[str]) -> dict[str, SpecRow]:
    """The profiles of these ids."""
    wanted = among(profiles.c.id, sorted(set(profile_ids)))
    return {each.id: each for each in await PROFILES.read(connection, wanted)}


async def profile_type(connection: AsyncConnection, profile_id: str) -> str:
    """The type of a profile that is in use."""
    return (await profiles_by_id(connection, [profile_id]))[profile_id].type


def profile_view(row: SpecRow) -> ProfileView:
    """A profile as policies see it."""
    return ProfileView(row.id, row.name, row.type, row.spec.get("properties") or {}, row.created_at)


def cluster_view(row: ClusterRecord, nodes_: tuple[NodeView, ...], profiles_: Mapping[str, SpecRow]) -> ClusterView:
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


def health_of(bounds: Sizes, active: int, operation: str) -> tuple[ClusterStatus, str]:
    """The status of a cluster with that many active nodes, and the reason to give for it."""
    if active < bounds.min_size:
        return ClusterStatus.ERROR, f"{operation}: number of active nodes is below min_size ({bounds.min_size})."
    desired = bounds.desired_capacity
    if active < desired:
        reason = f"{operation}: number of active nodes is below desired_capacity ({desired})."
        return ClusterStatus.WARNING, reason
    if bounds.max_size < 0 or active <= bounds.max_size:
        reason = f"{operation}: number of active nodes is equal or above desired_capacity ({desired})."
        return ClusterStatus.ACTIVE, reason
    return ClusterStatus.WARNING, f"{operation}: number of active nodes is above max_size ({bounds.max_size})."
