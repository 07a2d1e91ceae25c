"""Servers where they are: what questions about many of them at once start from."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory.flavors import ServerFlavor
from roost.compute.inventory.live_fleet import LiveFleet
from roost.placement.fleet import Resources
from roost.store.tables.servers import claims, servers


@dataclass(frozen=True, slots=True)
class PlacedServer:
    """A server on a host, which is known by its place in the fleet."""

    id: str
    name: str
    project_id: str
    group_id: str | None
    host: int
    resources: Resources
    zone: str | None
    partition: int | None = None


async def load(connection: AsyncConnection, live: LiveFleet, *conditions: sa.ColumnElement[bool]) -> list[PlacedServer]:
    """The servers that have a place and meet these conditions, in the order in which they were made. One that a Nova
    still makes, on a host that it has not named yet, is where its place is reserved."""
    columns = ("id", "name", "project_id", "group_id", "flavor", "zone", "partition")
    reserved = sa.select(sa.func.min(claims.c.host_id)).where(claims.c.server_id == servers.c.id).scalar_subquery()
    host_id = sa.func.coalesce(servers.c.host_id, reserved).label("host_id")
    query = sa.select(host_id, *(servers.c[name] for name in columns)).where(host_id.is_not(None), *conditions)
    found = []
    for row in await connection.execute(query.order_by(servers.c.number)):
        host = live.index(row.host_id)
        if host is not None:
            size = ServerFlavor.from_json(row.flavor).size
            place = (row.group_id, host, size, row.zone, row.partition)
            found.append(PlacedServer(row.id, row.name, row.project_id, *place))
    return found
