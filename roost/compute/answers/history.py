"""What happened, and how figures developed: the feed, the history of a group or host, and the samples for charts."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import UUID, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.database import Database
from roost.store.tables.answers import violations
from roost.store.tables.clusters import clusters, events
from roost.store.tables.compute import hosts
from roost.store.tables.history import happenings, samples
from roost.store.tables.servers import instance_actions, migrations, server_groups, servers
from roost.store.uuids import is_uuid

KINDS = (
    *("placed", "moved", "failed", "deleted", "rule_broken", "rule_mended"),
    *("host_down", "host_up", "host_disabled", "host_enabled", "action"),
)
SAMPLE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """Which part of the feed to read."""

    project_id: str | None
    """The caller's project; None for an operator, who sees all."""
    kinds: frozenset[str] = frozenset(KINDS)
    group_id: str | None = None
    server_id: str | None = None
    host: str | None = None
    cluster_id: str | None = None
    before: datetime | None = None
    limit: int = 100


class FeedEvent(NamedTuple):
    """Something that happened, with the names of its group and its cluster where they still exist."""

    at: datetime
    kind: str
    project_id: str | None
    server_id: str | None
    name: str | None
    group_id: str | None
    cluster_id: str | None
    host: str | None
    source: str | None
    detail: str | None
    group: str | None
    cluster: str | None


async def feed(connection: AsyncConnection, request: FeedRequest) -> list[FeedEvent]:
    """The latest events first; and with the last of a page all that happened in the same moment, so that the next page
    begins before it."""
    none = sa.null()
    parts = []
    if request.cluster_id is None:
        parts.append(_part(request, happenings.c.at, _stored(), happenings.c, happenings.c.kind.in_(request.kinds)))
    if "placed" in request.kinds and request.cluster_id is None:
        parts.append(_placed(request))
    if "action" in request.kinds and request.group_id is None and request.host is None and request.server_id is None:
        query = sa.select(
            events.c.timestamp.label("at"), sa.literal("action").label("kind"), events.c.project_id,
            sa.cast(none, sa.Text).label("server_id"), events.c.oname.label("name"),
            sa.cast(none, sa.Text).label("group_id"), events.c.cluster_id,
            sa.cast(none, sa.Text).label("host"), sa.cast(none, sa.Text).label("source"),
            (events.c.action + sa.literal(" ") + events.c.status + sa.literal(": ") + events.c.status_reason).label(
                "detail"
            ),
        )  # fmt: skip
        conditions = [] if request.cluster_id is None else [events.c.cluster_id == request.cluster_id]
        parts.append(_part(request, events.c.timestamp, query, events.c, *conditions))
    if not parts:
        return []
    merged = sa.union_all(*(sa.select(part.subquery()) for part in parts)).subquery()
    named = merged.outerjoin(server_groups, server_groups.c.id == sa.cast(merged.c.group_id, UUID(as_uuid=False)))
    named = named.outerjoin(clusters, clusters.c.id == merged.c.cluster_id)
    names = (server_groups.c.name.label("group"), clusters.c.name.label("cluster"))
    query = sa.select(merged, *names).select_from(named)
    rows = await connection.execute(query.order_by(merged.c.at.desc()).fetch(request.limit, with_ties=True))
    return [FeedEvent(*row) for row in rows]


def _stored() -> sa.Select[Any]:
    return sa.select(
        happenings.c.at, happenings.c.kind, happenings.c.project_id,
        sa.cast(happenings.c.server_id, sa.Text).label("server_id"), happenings.c.server_name.label("name"),
        sa.cast(happenings.c.group_id, sa.Text).label("group_id"), sa.cast(sa.null(), sa.Text).label("cluster_id"),
        happenings.c.host, happenings.c.source, happenings.c.detail,
    )  # fmt: skip


def _placed(request: FeedRequest) -> sa.Select[Any]:
    """Creates, from the history of the servers that still exist: of one that has moved, where it moved from first."""
    moves = sa.select(migrations.c.source).where(migrations.c.server_id == servers.c.id)
    first = moves.order_by(migrations.c.id).limit(1).scalar_subquery()
    query = (
        sa.select(
            instance_actions.c.start_time.label("at"), sa.literal("placed").label("kind"), servers.c.project_id,
            sa.cast(servers.c.id, sa.Text).label("server_id"), servers.c.name,
            sa.cast(servers.c.group_id, sa.Text).label("group_id"), sa.cast(sa.null(), sa.Text).label("cluster_id"),
            sa.func.coalesce(first, hosts.c.name).label("host"), sa.cast(sa.null(), sa.Text).label("source"),
            instance_actions.c.message,
        )
        .select_from(instance_actions.join(servers, servers.c.id == instance_actions.c.server_id))
        .outerjoin(hosts, hosts.c.id == servers.c.host_id)
        .where(instance_actions.c.action == sa.literal_column("'create'"), instance_actions.c.message.is_(None))
    )  # fmt: skip
    if request.host is not None:
        query = query.where(hosts.c.name == request.host, first.is_(None))
    if request.group_id is not None:
        query = query.where(servers.c.group_id == _uuid(request.group_id))
    if request.server_id is not None:
        query = query.where(servers.c.id == _uuid(request.server_id))
    if request.project_id is not None:
        query = query.where(servers.c.project_id == request.project_id)
    if request.before is not None:
        query = query.where(instance_actions.c.start_time < request.before)
    return query.order_by(instance_actions.c.start_time.desc()).fetch(request.limit, with_ties=True)


def _uuid(text: str) -> str | None:
    return text if is_uuid(text) else None


def _part(
    request: FeedRequest, at: sa.Column[Any], query: sa.Select[Any], columns: Any, *conditions: sa.ColumnElement[bool]
) -> sa.Select[Any]:
    query = query.where(*conditions)
    if request.project_id is not None:
        query = query.where(columns.project_id == request.project_id)
    if request.before is not None:
        query = query.where(at < request.before)
    if columns is happenings.c:
        if request.group_id is not None:
            query = query.where(happenings.c.group_id == _uuid(request.group_id))
        if request.server_id is not None:
            query = query.where(happenings.c.server_id == _uuid(request.server_id))
        if request.host is not None:
            query = query.where(sa.or_(happenings.c.host == request.host, happenings.c.source == request.host))
    return query.order_by(at.desc()).fetch(request.limit, with_ties=True)


# Figures over time


async def take_sample(connection: AsyncConnection) -> None:
    """Write down this minute's figures, unless another engine has."""
    free = sa.select(
        sa.func.coalesce(sa.func.sum(hosts.c.vcpus - hosts.c.vcpus_used), 0),
        sa.func.coalesce(sa.func.sum(hosts.c.memory_mb - hosts.c.memory_mb_used), 0),
        sa.func.coalesce(sa.func.sum(hosts.c.servers), 0),
    ).where(hosts.c.enabled, sa.not_(hosts.c.forced_down))
    vcpus, memory, placed = (await connection.execute(free)).one()
    broken = await connection.scalar(sa.select(sa.func.count()).select_from(violations))
    recent = servers.c.launched_at > sa.func.now() - timedelta(seconds=SAMPLE_SECONDS)
    seconds = sa.extract("epoch", servers.c.launched_at - servers.c.created_at)
    boots, boot = (await connection.execute(sa.select(sa.func.count(), sa.func.avg(seconds)).where(recent))).one()
    minute = sa.func.date_trunc("minute", sa.func.now())
    figures = {"free_vcpus": vcpus, "free_memory_mb": memory, "servers": placed, "violations": broken, "boots": boots}
    figures |= {"boot_seconds": boot} if boot is not None else {}
    rows = [{"at": minute, "name": name, "value": float(value or 0)} for name, value in figures.items()]
    await connection.execute(insert(samples).values(rows).on_conflict_do_nothing())


async def sample(database: Database) -> None:
    """Take this minute's figures."""
    async with database.begin() as connection:
        await take_sample(connection)


async def figures(connection: AsyncConnection, hours: float) -> dict[str, list[tuple[datetime, float]]]:
    """Every figure over the last hours, oldest first."""
    query = sa.select(samples.c.name, samples.c.at, samples.c.value)
    query = query.where(samples.c.at > sa.func.now() - timedelta(hours=hours)).order_by(samples.c.at)
    found: dict[str, list[tuple[datetime, float]]] = {}
    for name, at, value in await connection.execute(query):
        found.setdefault(name, []).append((at, value))
    return found
