"""Quotas: how much a project may use, and how much it does.

A limit is, in this order: what was set for the user in the project, for the project, for the class `default`, or in
the configuration. -1 is no limit.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory import claims
from roost.compute.inventory.claims import Usage
from roost.errors import Invalid
from roost.store.tables.compute import quota_classes, quotas
from roost.store.tables.servers import project_usage, server_groups

DEFAULT_CLASS = "default"

Limits = Mapping[str, int]
Share = tuple[str, str]
"""A project and '', or a project and a user who has its own limits in it."""


async def limits(connection: AsyncConnection, configured: Limits, project_id: str, user_id: str = "") -> dict[str, int]:
    """The limits of a project, or of a user in it; `configured` has all resources."""
    of_class = sa.select(quota_classes.c.resource, quota_classes.c.limit, sa.literal("").label("user_id"))
    of_project = sa.select(quotas.c.resource, quotas.c.limit, quotas.c.user_id)
    both = sa.union_all(
        of_class.add_columns(sa.literal(0).label("rank")).where(quota_classes.c.name == DEFAULT_CLASS),
        of_project.add_columns(sa.literal(1)).where(
            quotas.c.project_id == project_id, quotas.c.user_id.in_(["", user_id])
        ),
    )
    rows = await connection.execute(both.order_by("rank", "user_id"))
    return {**configured, **{row.resource: row.limit for row in rows}}


async def limits_of(
    connection: AsyncConnection, configured: Limits, project_ids: Collection[str], user_ids: Collection[str]
) -> dict[Share, dict[str, int]]:
    """The limits of several projects, and of those of their users who have some of their own, in one query."""
    of_class = sa.select(
        sa.null().label("project_id"), sa.literal("").label("user_id"), quota_classes.c.resource, quota_classes.c.limit
    )
    of_projects = sa.select(quotas.c.project_id, quotas.c.user_id, quotas.c.resource, quotas.c.limit)
    both = sa.union_all(
        of_class.where(quota_classes.c.name == DEFAULT_CLASS),
        of_projects.where(quotas.c.project_id.in_(project_ids), quotas.c.user_id.in_({"", *user_ids})),
    )
    rows = (await connection.execute(both)).all()
    return assemble(configured, project_ids, [(row[0], row[1], row[2], row[3]) for row in rows])


def assemble(
    configured: Limits, project_ids: Collection[str], rows: Iterable[tuple[str | None, str, str, int]]
) -> dict[Share, dict[str, int]]:
    """Limits by project and user, from rows of project (None: all), user ('': the project), resource and limit."""
    # The projects' rows come before those of their users, who begin with what the project has.
    ordered = sorted(rows, key=lambda row: row[1])
    everyone = {**configured, **{resource: limit for project, _, resource, limit in ordered if project is None}}
    found = {(project_id, ""): dict(everyone) for project_id in project_ids}
    for project, user, resource, limit in ordered:
        if project is not None:
            found.setdefault((project, user), dict(found[project, ""]))[resource] = limit
    return found


async def lock_used(connection: AsyncConnection, shares: Collection[Share]) -> dict[Share, Usage]:
    """What these use of servers. The projects' usage is locked, so that the answers stay true."""
    projects = sorted({project_id for project_id, _ in shares})
    used = {(project_id, ""): await claims.lock_usage(connection, project_id) for project_id in projects}
    return used | await _used_by(connection, [share for share in shares if share[1]])


def excess(used: Usage, wants: Usage, limits: Limits) -> str | None:
    """The sentence for what a request would exceed, in Nova's words."""
    over = [
        (name, getattr(wants, name), getattr(used, name), limits[name])
        for name in ("cores", "instances", "ram")
        if getattr(wants, name) and 0 <= limits[name] < getattr(used, name) + getattr(wants, name)
    ]
    if not over:
        return None
    names, requested, in_use, allowed = (", ".join(str(each) for each in column) for column in zip(*over, strict=True))
    return f"Quota exceeded for {names}: Requested {requested}, but already used {in_use} of {allowed} {names}"


async def class_limits(connection: AsyncConnection, configured: Limits, name: str) -> dict[str, int]:
    """The limits of a quota class: only `default` has any effect."""
    rows = await connection.execute(sa.select(quota_classes).where(quota_classes.c.name == name))
    return {**configured, **{row.resource: row.limit for row in rows}}


async def used(connection: AsyncConnection, project_id: str, user_id: str = "") -> dict[str, int]:
    """What a project uses, or a user in it; a resource that is not counted is left out."""
    if user_id:
        share = (await _used_by(connection, [(project_id, user_id)]))[project_id, user_id]
        theirs = (server_groups.c.project_id == project_id, server_groups.c.user_id == user_id)
        count = await connection.scalar(sa.select(sa.func.count()).select_from(server_groups).where(*theirs))
        return {**asdict(share), "server_groups": count or 0}
    groups = sa.select(project_usage.c.server_groups).where(project_usage.c.project_id == project_id)
    servers = asdict(await claims.usage(connection, project_id))
    return {**servers, "server_groups": await connection.scalar(groups) or 0}


async def _used_by(connection: AsyncConnection, shares: Collection[Share]) -> dict[Share, Usage]:
    """What users use in their projects: counted each time, since few have limits of their own."""
    if not shares:
        return {}
    pairs = {"projects": [project for project, _ in shares], "users": [user for _, user in shares]}
    rows = await connection.execute(_USED_BY, pairs)
    return {(row.project_id, row.user_id): Usage(row.instances, row.cores, row.ram) for row in rows}


# A server that is being resized counts as the larger of its flavors, as `Usage.of` has it.
_USED_BY = sa.text("""
    SELECT share.project_id, share.user_id, count(s.id) AS instances,
        coalesce(sum(greatest((s.flavor->>'vcpus')::int, (s.step->'flavor'->>'vcpus')::int)), 0) AS cores,
        coalesce(sum(greatest((s.flavor->>'memory_mb')::int, (s.step->'flavor'->>'memory_mb')::int)), 0) AS ram
    FROM unnest(CAST(:projects AS text[]), CAST(:users AS text[])) AS share (project_id, user_id)
    LEFT JOIN servers AS s ON s.project_id = share.project_id AND s.user_id = share.user_id
    GROUP BY share.project_id, share.user_id
""")


async def change(
    connection: AsyncConnection,
    configured: Limits,
    project_id: str,
    changes: Limits,
    *,
    user_id: str = "",
    force: bool = False,
) -> None:
    """Set limits of a project, or of a user in it: not below what is used unless forced, nor a user's above the
    project's."""
    if not force:
        in_use = await used(connection, project_id, user_id)
        whole = await limits(connection, configured, project_id) if user_id else {}
        for resource, limit in changes.items():
            _check(resource, limit, in_use.get(resource, 0), whole.get(resource, -1))
    rows = [
        {"project_id": project_id, "user_id": user_id, "resource": resource, "limit": limit}
        for resource, limit in changes.items()
    ]
    await _put(connection, quotas, rows)


async def change_class(connection: AsyncConnection, name: str, changes: Limits) -> None:
    """Set limits of a quota class."""
    rows = [{"name": name, "resource": resource, "limit": limit} for resource, limit in changes.items()]
    await _put(connection, quota_classes, rows)


async def reset(connection: AsyncConnection, project_id: str, resources: Collection[str], user_id: str = "") -> None:
    """Forget what was set of these resources for a project and its users, or for one user in it."""
    query = quotas.delete().where(quotas.c.project_id == project_id, quotas.c.resource.in_(resources))
    await connection.execute(query.where(quotas.c.user_id == user_id) if user_id else query)


def _check(resource: str, limit: int, in_use: int, most: int) -> None:
    if 0 <= limit < in_use:
        raise Invalid(
            f"Quota limit {limit} for {resource} must be greater than or equal to already used and reserved {in_use}."
        )
    if most >= 0 and (limit < 0 or limit > most):
        raise Invalid(f"Quota limit {limit} for {resource} must be less than or equal to {most}.")


async def _put(connection: AsyncConnection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        query = insert(table).values(rows)
        await connection.execute(
            query.on_conflict_do_update(constraint=table.primary_key, set_={"limit": query.excluded.limit})
        )
