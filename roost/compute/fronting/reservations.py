"""Places that another scheduler takes for members of groups, before it makes them.

A place is chosen (`choice`) on a group at a version (`show`) and on the fleet at a generation, and asked for with both
numbers (`reserve`). The group's row is locked, so of two choices on the same version only one is carried out; the other
is stale. A reservation is a claim of a server that Nova
is still making, or moving; it becomes a fact, or is given back, when Nova says where the server is.

An applied plan holds its places (`hold`) before Nova is asked for the servers. A server that comes with the token of
one gets that place and no other. When the plan fails its places are given up (`give_up`), and a server that Nova makes
for one of them all the same is deleted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import groups, members
from roost.compute.inventory import claims
from roost.compute.inventory.changes import latest_generation
from roost.config import Settings
from roost.errors import Conflict, Invalid
from roost.placement.record import Record
from roost.placement.rules import Rule
from roost.store.tables.answers import planned_places
from roost.store.tables.compute import hosts
from roost.store.tables.servers import claims as claims_table
from roost.store.tables.servers import server_groups, servers

_HELD = sa.text("interval '10 minutes'")
"""How long the place of an applied plan waits for its server: the scheduler of a busy cloud may have a queue."""
_FRESH = planned_places.c.created_at > sa.func.now() - _HELD


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """A place of an applied plan."""

    host: str
    partition: int | None = None
    server_id: str | None = None
    """The server that came for it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A group as a decision needs it."""

    id: str
    version: int
    rules: tuple[Rule, ...]
    members: Mapping[str, tuple[str, ...]]
    """The hosts on which each member has a place: none that it found, or two while it moves."""
    building: tuple[str, ...]
    """The members that have not run yet."""
    partitions: Mapping[str, int]
    """The number of each member that has one."""
    held: Mapping[str, HeldPlace] = field(default_factory=dict)
    """The places of applied plans, by token."""


@dataclass(frozen=True, slots=True)
class Order:
    """A place to reserve, as decided on a version and a generation; without a host, it says that there was none."""

    instance_id: str
    project_id: str
    user_id: str
    resources: Mapping[str, int]
    host: str | None
    version: int
    generation: int
    record: Record
    partition: int | None = None
    """The number of the server, where the group is divided."""
    token: str | None = None
    """The place of an applied plan that this is."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The order was carried out: the group's version since, and where the server has a place now."""

    version: int
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stale:
    """The order was decided on an outdated state; nothing was done."""


async def adopted(connection: AsyncConnection) -> list[str]:
    """The members of groups that Nova does not know to be members."""
    unknown = servers.c.hints["group"].astext.is_distinct_from(sa.cast(servers.c.group_id, sa.Text))
    return list(await connection.scalars(sa.select(servers.c.id).where(servers.c.group_id.is_not(None), unknown)))


async def show(connection: AsyncConnection, group_id: str) -> Snapshot:
    """A group as it is now."""
    known = server_groups.c.id == group_id, server_groups.c.missing_since.is_(None)
    version: int | None = await connection.scalar(sa.select(server_groups.c.version).where(*known))
    if version is None:
        raise groups.missing(group_id)
    return await _snapshot(connection, group_id, version)


async def reserve(connection: AsyncConnection, settings: Settings, group_id: str, order: Order) -> Reserved | Stale:
    """Take the place that an order names, unless the group or the fleet is not what the order was decided on. Raises
    `NotFound` where the group no longer binds the server."""
    server = await _server(connection, order.instance_id, lock=True)
    version = (await claims.lock_groups(connection, [group_id])).get(group_id)
    if server is None and version is not None:
        # Adding a member locks the group: whatever was committed in between can be read now.
        server = await _server(connection, order.instance_id)
    if version is None or (server is not None and server.group_id != group_id):
        raise groups.missing(group_id)
    generation = await latest_generation(connection)
    if (version, generation) != (order.version, order.generation):
        return Stale()
    host_id = None if order.host is None else await _host_id(connection, order.host)
    if server is None:
        server = await _insert(connection, group_id, order)
        await members.announce_added(connection, settings, [(group_id, order.instance_id)])
    runs = server.launched_at is not None
    if host_id is not None or not runs:
        partition = server.partition if runs else order.partition
        explained = servers.update().where(servers.c.id == server.id)
        await connection.execute(explained.values(explanation=order.record, partition=partition))
    if order.token is not None:
        mine = planned_places.c.token == order.token
        await connection.execute(planned_places.update().where(mine).values(server_id=server.id))
    changed = await occupy(connection, server.id, {server.host_id, host_id} - {None})
    await claims.touch_groups(connection, [group_id] if changed else [])
    places = await _places(connection, servers.c.id == server.id)
    return Reserved(version + changed, places.get(server.id, ()))


async def hold(connection: AsyncConnection, group_id: str, places: Sequence[tuple[int, int | None]]) -> list[str]:
    """Hold places in a group that the caller has locked, each a host and a partition, for servers to come; the token of
    each. What others have decided on the group meanwhile is stale. Raises `Conflict` while servers are still to come
    for places that were held before: plans do not know of those."""
    rows = [{"group_id": group_id, "host_id": host_id, "partition": partition} for host_id, partition in places]
    await connection.execute(planned_places.delete().where(~_FRESH))
    if any(place.server_id is None for place in (await _held(connection, group_id)).values()):
        raise Conflict("The servers of a plan that was applied before are still to be placed; plan again in a moment.")
    made = sa.insert(planned_places).returning(planned_places.c.token, sort_by_parameter_order=True)
    tokens = list(await connection.scalars(made, rows))
    await claims.touch_groups(connection, [group_id])
    return tokens


async def give_up(connection: AsyncConnection, tokens: Sequence[str]) -> None:
    """Release these places: their servers are not wanted, though Nova may still make them."""
    mine = planned_places.c.token.in_(tokens)
    await connection.execute(planned_places.update().where(mine).values(given_up=True))


async def given_up(connection: AsyncConnection) -> set[str]:
    """The tokens of places that were given up a short while ago."""
    query = sa.select(planned_places.c.token).where(planned_places.c.given_up, _FRESH)
    return set(await connection.scalars(query))


async def occupy(connection: AsyncConnection, server_id: str, host_ids: Iterable[int | None]) -> bool:
    """Let a server have a place on exactly these hosts; says whether that changed anything. Nova counts what it takes
    of them."""
    wanted = [host_id for host_id in host_ids if host_id is not None]
    own = claims_table.c.server_id == server_id
    gone = claims_table.delete().where(own, claims_table.c.host_id.not_in(wanted)).returning(claims_table.c.host_id)
    changed = bool((await connection.scalars(gone)).all())
    if wanted:
        nothing = {"vcpus": 0, "memory_mb": 0, "disk_gb": 0}
        rows = [{"server_id": server_id, "host_id": host_id, **nothing} for host_id in wanted]
        new = insert(claims_table).values(rows).on_conflict_do_nothing().returning(claims_table.c.host_id)
        changed = bool((await connection.scalars(new)).all()) or changed
    return changed


class _Member(NamedTuple):
    id: str
    group_id: str | None
    host_id: int | None
    partition: int | None
    launched_at: datetime | None


_MEMBER = [servers.c[name] for name in _Member._fields]


async def _server(connection: AsyncConnection, server_id: str, *, lock: bool = False) -> _Member | None:
    query = sa.select(*_MEMBER).where(servers.c.id == server_id)
    row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    return None if row is None else _Member(*row)


async def _insert(connection: AsyncConnection, group_id: str, order: Order) -> _Member:
    """What is known of the server before Nova has made it."""
    values = {
        "id": order.instance_id,
        "project_id": order.project_id,
        "user_id": order.user_id,
        "name": order.instance_id,
        "hostname": order.instance_id,
        "flavor": dict(order.resources),
        "hints": {"group": group_id},
        "reservation_id": "",
        "group_id": group_id,
        "vm_state": "building",
    }
    return _Member(*(await connection.execute(servers.insert().values(values).returning(*_MEMBER))).one())


async def _host_id(connection: AsyncConnection, name: str) -> int:
    host_id: int | None = await connection.scalar(sa.select(hosts.c.id).where(hosts.c.name == name))
    if host_id is None:
        raise Invalid(f"Compute host {name} could not be found.")
    return host_id


async def _snapshot(connection: AsyncConnection, group_id: str, version: int) -> Snapshot:
    columns = (servers.c.id, servers.c.launched_at, servers.c.partition)
    members = sa.select(*columns).where(servers.c.group_id == group_id)
    rows = (await connection.execute(members.order_by(servers.c.number))).all()
    places = await _places(connection, servers.c.group_id == group_id)
    rules = (await groups.rules_of(connection, [group_id]))[group_id]
    building = tuple(row.id for row in rows if row.launched_at is None)
    hosts_of = {row.id: places.get(row.id, ()) for row in rows}
    partitions = {row.id: row.partition for row in rows if row.partition is not None}
    held = await _held(connection, group_id)
    return Snapshot(group_id, version, rules, hosts_of, building, partitions, held)


async def _held(connection: AsyncConnection, group_id: str) -> dict[str, HeldPlace]:
    table = planned_places
    query = sa.select(table, hosts.c.name).join(hosts, hosts.c.id == table.c.host_id)
    rows = await connection.execute(query.where(table.c.group_id == group_id, ~table.c.given_up, _FRESH))
    return {row.token: HeldPlace(row.name, row.partition, row.server_id) for row in rows}


async def _places(connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> dict[str, tuple[str, ...]]:
    query = (
        sa.select(servers.c.id, sa.func.array_agg(hosts.c.name).label("hosts"))
        .join(claims_table, claims_table.c.server_id == servers.c.id)
        .join(hosts, hosts.c.id == claims_table.c.host_id)
        .where(condition)
        .group_by(servers.c.id)
    )
    return {row.id: tuple(row.hosts) for row in await connection.execute(query)}
