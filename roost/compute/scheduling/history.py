"""What was done to servers, and where they have moved."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.tables.servers import instance_actions, migrations


@dataclass(frozen=True, slots=True)
class InstanceAction:
    """One thing that was done to a server."""

    server_id: str
    action: str
    request_id: str
    user_id: str
    project_id: str
    start_time: datetime
    finish_time: datetime | None
    message: str | None
    """What went wrong, if anything."""

    @classmethod
    def from_json(cls, kept: Mapping[str, str | None]) -> "InstanceAction":
        """As it is kept with a deleted server."""
        values: dict[str, Any] = {each.name: kept[each.name] for each in fields(cls)}
        values |= {key: datetime.fromisoformat(values[key]) for key in _MOMENTS if values[key]}
        return cls(**values)


@dataclass(frozen=True, slots=True)
class ServerMigration:
    """One move of a server."""

    id: int
    uuid: str
    server_id: str
    type: str
    status: str
    source: str | None
    destination: str | None
    old_flavor_id: str
    new_flavor_id: str
    user_id: str
    project_id: str
    created_at: datetime
    updated_at: datetime | None


_MOMENTS = ("start_time", "finish_time")
_ACTION = tuple(instance_actions.c[each.name] for each in fields(InstanceAction))
_MIGRATION = tuple(migrations.c[each.name] for each in fields(ServerMigration))


async def actions_of(connection: AsyncConnection, server_id: str) -> list[InstanceAction]:
    """The history of a server, the newest first."""
    query = sa.select(*_ACTION).where(instance_actions.c.server_id == server_id)
    rows = await connection.execute(query.order_by(instance_actions.c.id.desc()))
    return [InstanceAction(*row) for row in rows]


async def migrations_of(
    connection: AsyncConnection,
    *,
    server_id: str | None = None,
    status: str | None = None,
    host: str | None = None,
    kind: str | None = None,
) -> list[ServerMigration]:
    """Moves of servers, the newest first."""
    query = sa.select(*_MIGRATION).order_by(migrations.c.id.desc())
    if server_id is not None:
        query = query.where(migrations.c.server_id == server_id)
    if status is not None:
        query = query.where(migrations.c.status == status)
    if kind is not None:
        query = query.where(migrations.c.type == kind)
    if host is not None:
        query = query.where(sa.or_(migrations.c.source == host, migrations.c.destination == host))
    return [ServerMigration(*row) for row in await connection.execute(query)]
