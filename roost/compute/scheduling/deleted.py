"""Deleted servers: kept for as long as history is, so that clients that follow changes see them go."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory.flavors import ServerFlavor
from roost.compute.scheduling.history import InstanceAction
from roost.compute.scheduling.servers import Filters, Server
from roost.errors import NotFound
from roost.store.tables.servers import deleted_servers
from roost.store.uuids import is_uuid

_MOMENTS = ("created_at", "updated_at", "launched_at")


async def index(connection: AsyncConnection, filters: Filters, limit: int, marker: str | None) -> Sequence[Server]:
    """Deleted servers of a project, or of all, the last deleted first."""
    table = deleted_servers
    query = sa.select(table).order_by(table.c.deleted_at.desc(), table.c.id).limit(limit)
    second = sa.func.date_trunc("second", table.c.deleted_at)
    if filters.project_id is not None:
        query = query.where(table.c.project_id == filters.project_id)
    if filters.changed_since is not None:
        query = query.where(second >= filters.changed_since)
    if filters.changed_before is not None:
        query = query.where(second <= filters.changed_before)
    if filters.ids:
        query = query.where(table.c.id.in_([each for each in filters.ids if is_uuid(each)]))
    if filters.name is not None:
        query = query.where(table.c.server["name"].astext.contains(filters.name, autoescape=True))
    if marker is not None and (last := await _find(connection, marker)) is not None:
        query = query.where(
            sa.or_(
                table.c.deleted_at < last.deleted_at,
                sa.and_(table.c.deleted_at == last.deleted_at, table.c.id > last.id),
            )
        )
    return [_server(row) for row in await connection.execute(query)]


async def exists(connection: AsyncConnection, server_id: str) -> bool:
    """Whether this was a server."""
    return await _find(connection, server_id) is not None


async def find(connection: AsyncConnection, server_id: str) -> tuple[Server, list[InstanceAction]]:
    """A deleted server, and what was done to it, the newest first."""
    row = await _find(connection, server_id)
    if row is None:
        raise NotFound(f"Instance {server_id} could not be found.")
    return _server(row), [InstanceAction.from_json(each) for each in row.actions]


async def _find(connection: AsyncConnection, server_id: str) -> Any | None:
    if not is_uuid(server_id):
        return None
    return (await connection.execute(sa.select(deleted_servers).where(deleted_servers.c.id == server_id))).one_or_none()


def _server(row: Any) -> Server:
    kept: Mapping[str, Any] = row.server
    values = {field.name: kept.get(field.name) for field in fields(Server)}
    values |= {key: datetime.fromisoformat(kept[key]) if kept.get(key) else None for key in _MOMENTS}
    state = {"vm_state": "deleted", "task_state": None, "power_state": 0, "due_at": None, "step": None, "fault": None}
    where = {"host": row.host, "host_zone": row.host_zone, "host_enabled": None, "host_down": None}
    flavor = ServerFlavor.from_json(kept["flavor"])
    return Server(**{**values, **state, **where, "flavor": flavor, "updated_at": row.deleted_at})
