"""Availability zones: the names that aggregates give to their hosts."""

from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory import hosts
from roost.compute.inventory.hosts import ComputeHost
from roost.store.tables.compute import hosts as hosts_table

_zone = sa.func.coalesce(sa.func.nullif(hosts_table.c.availability_zone, ""), hosts.DEFAULT_ZONE)


class AvailabilityZone(NamedTuple):
    """A zone, and whether any of its hosts is enabled, and any of those up."""

    name: str
    enabled: bool
    up: bool


def zone_of(host: ComputeHost) -> str:
    """The zone that a host is in."""
    return host.availability_zone or hosts.DEFAULT_ZONE


async def index(connection: AsyncConnection) -> list[AvailabilityZone]:
    """All zones that have hosts, by name."""
    enabled = hosts_table.c.enabled
    states = sa.func.bool_or(enabled), sa.func.bool_or(sa.and_(enabled, sa.not_(hosts_table.c.forced_down)))
    rows = await connection.execute(sa.select(_zone, *states).group_by(sa.text("1")).order_by(sa.text("1")))
    return [AvailabilityZone._make(row) for row in rows]


async def exists(connection: AsyncConnection, name: str) -> bool:
    """Whether any host is in this zone."""
    query = sa.select(hosts_table.c.id).where(_zone == name).limit(1)
    return (await connection.execute(query)).first() is not None
