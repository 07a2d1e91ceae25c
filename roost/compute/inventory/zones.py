"""Availability zones: the names that aggregates give to their hosts."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory import hosts
from roost.compute.inventory.hosts import ComputeHost
from roost.store.tables.compute import hosts as hosts_table


def zone_of(host: ComputeHost) -> str:
    """The zone that a host is in."""
    return host.availability_zone or hosts.DEFAULT_ZONE


async def index(connection: AsyncConnection) -> Mapping[str, Sequence[ComputeHost]]:
    """All zones that have hosts, by name, each with its hosts."""
    zones: dict[str, list[ComputeHost]] = {}
    for host in await hosts.index(connection):
        zones.setdefault(zone_of(host), []).append(host)
    return dict(sorted(zones.items()))


async def exists(connection: AsyncConnection, name: str) -> bool:
    """Whether any host is in this zone."""
    named = sa.func.coalesce(sa.func.nullif(hosts_table.c.availability_zone, ""), hosts.DEFAULT_ZONE)
    query = sa.select(hosts_table.c.id).where(named == name).limit(1)
    return (await connection.execute(query)).first() is not None
