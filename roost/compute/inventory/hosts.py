"""Hosts: what Nova shows as a hypervisor and as the compute service that runs on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypedDict, Unpack

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory.changes import host_changed
from roost.errors import Conflict, NotFound
from roost.store import pages
from roost.store.pages import EVERYTHING, PageRequest, SortKey
from roost.store.tables.compute import aggregate_hosts, hosts
from roost.store.tables.servers import servers
from roost.turns import spread

DEFAULT_ZONE = "nova"
"""The zone of a host that no aggregate puts into one."""


class ComputeHost(NamedTuple):
    """A host as the APIs show it."""

    id: int
    name: str
    uuid: str
    service_uuid: str
    address: str
    availability_zone: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    vcpus_used: int
    memory_mb_used: int
    disk_gb_used: int
    servers: int
    enabled: bool
    disabled_reason: str | None
    forced_down: bool
    created_at: datetime
    updated_at: datetime | None


class HostTotals(NamedTuple):
    """How many hosts there are, and all their capacity and use together."""

    hosts: int
    vcpus: int
    vcpus_used: int
    memory_mb: int
    memory_mb_used: int
    disk_gb: int
    disk_gb_used: int
    servers: int


_COLUMNS = [hosts.c[name] for name in ComputeHost._fields]
_AT_A_TIME = 2000


@dataclass(frozen=True, slots=True)
class HostedServer:
    """A server as a hypervisor lists it."""

    name: str
    uuid: str


async def index(
    connection: AsyncConnection,
    *,
    name: str | None = None,
    containing: str | None = None,
    page: PageRequest = EVERYTHING,
    by_uuid: bool = True,
) -> Sequence[ComputeHost]:
    """Hosts in the order of their ids: of this name, or with this in their names. A marker is a uuid or an id."""
    conditions = [] if name is None else [hosts.c.name == name]
    if containing is not None:
        conditions.append(hosts.c.name.contains(containing, autoescape=True))
    named = hosts.c.uuid if by_uuid else hosts.c.id
    # The driver hands over an answer in one step, which is slow for many rows, so they are read in pieces.
    piece = PageRequest(_AT_A_TIME) if page == EVERYTHING else page
    found: list[ComputeHost] = []
    while True:
        rest = [hosts.c.id > found[-1].id] if found else []
        order, every = [SortKey(hosts.c.id)], sa.select(*_COLUMNS)
        rows = await pages.read(connection, every, order, piece, *conditions, *rest, named=named)
        found += await spread(ComputeHost._make, rows)
        if page != EVERYTHING or len(rows) < _AT_A_TIME:
            return found


async def find(
    connection: AsyncConnection,
    *,
    name: str | None = None,
    host_id: int | None = None,
    uuid: str | None = None,
    service_uuid: str | None = None,
    lock: bool = False,
) -> ComputeHost | None:
    """One host, by the name or the id that is given; locked against other changes if asked."""
    given = {"name": name, "id": host_id, "uuid": uuid, "service_uuid": service_uuid}
    query = sa.select(*_COLUMNS).where(*(hosts.c[key] == value for key, value in given.items() if value is not None))
    row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    return None if row is None else ComputeHost(*row)


async def servers_on(connection: AsyncConnection, host_ids: Sequence[int]) -> Mapping[int, Sequence[HostedServer]]:
    """The servers on each of these hosts; a host without any is left out."""
    query = sa.select(servers.c.host_id, servers.c.number, servers.c.id).where(servers.c.host_id.in_(host_ids))
    found: dict[int, list[HostedServer]] = {}
    for row in await connection.execute(query.order_by(servers.c.number)):
        found.setdefault(row.host_id, []).append(HostedServer(f"instance-{row.number:08x}", row.id))
    return found


async def statistics(connection: AsyncConnection) -> HostTotals:
    """The totals of all hosts that are enabled."""
    totals = [sa.func.coalesce(sa.func.sum(hosts.c[name]), 0) for name in HostTotals._fields[1:]]
    query = sa.select(sa.func.count(), *totals).where(hosts.c.enabled)
    return HostTotals(*(await connection.execute(query)).one())


class HostValues(TypedDict, total=False):
    """What operators set on a host."""

    enabled: bool
    disabled_reason: str | None
    forced_down: bool


async def change(connection: AsyncConnection, host_id: int, **values: Unpack[HostValues]) -> ComputeHost:
    """Enable or disable a host, or say that it is down or up."""
    query = hosts.update().where(hosts.c.id == host_id).values(**values).returning(*_COLUMNS)
    changed = ComputeHost(*(await connection.execute(query)).one())
    await host_changed(connection, [host_id])
    return changed


async def disable(connection: AsyncConnection, host_ids: Sequence[int], reason: str) -> None:
    """Disable these hosts for new servers; those that are disabled already keep their reason."""
    taking = sa.select(hosts.c.id).where(hosts.c.id.in_(host_ids), hosts.c.enabled).order_by(hosts.c.id)
    found = list(await connection.scalars(taking.with_for_update()))
    change = hosts.update().where(hosts.c.id.in_(found))
    await connection.execute(change.values(enabled=False, disabled_reason=reason))
    await host_changed(connection, found)


async def delete(connection: AsyncConnection, *, host_id: int | None = None, service_uuid: str | None = None) -> None:
    """Take a host out of the inventory, and out of its aggregates."""
    host = await find(connection, host_id=host_id, service_uuid=service_uuid, lock=True)
    if host is None:
        raise NotFound(f"Service {service_uuid or host_id} not found.")
    if host.servers:
        raise Conflict(
            "Unable to delete compute service that is hosting instances. Migrate or delete the instances first."
        )
    await connection.execute(aggregate_hosts.delete().where(aggregate_hosts.c.host_id == host.id))
    await connection.execute(hosts.delete().where(hosts.c.id == host.id))
    await host_changed(connection, [host.id])
