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
from roost.store import pages
from roost.store.pages import PageRequest, SortKey
from roost.store.tables.servers import deleted_servers
from roost.store.uuids import is_uuid

_MOMENTS = ("created_at", "updated_at", "launched_at")


async def index(connection: AsyncConnection, filters: Filters, limit: int, marker: str | None) -> Sequence[Server]:
    """Deleted servers of a project, or of all, the last deleted first."""
    table = deleted_servers
    second = sa.func.date_trunc("second", table.c.deleted_at)
    conditions: list[sa.ColumnElement[bool]] = []
    if filters.project_id is not None:
        conditions.append(table.c.project_id == filters.project_id)
    if filters.changed_since is not None:
        conditions.append(second >= filters.changed_since)
    if filters.changed_before is not None:
        conditions.append(second <= filters.changed_before)
    if filters.ids:
        conditions.append(table.c.id.in_([each for each in filters.ids if is_uuid(each)]))
    if filters.name is not None:
        conditions.append(table.c.server["name"].astext.contains(filters.name, autoescape=True))
    known = marker if marker is not None and await exists(connection, marker) else None
    page, keys = PageRequest(limit, known), [SortKey(table.c.deleted_at, True), SortKey(table.c.id)]
    rows = await pages.read(connection, sa.select(table), keys, page, *conditions, named=table.c.id)
    return [_server(row) for row in rows]


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
