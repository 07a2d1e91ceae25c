"""Aggregates: sets of hosts, some of which name an availability zone or belong to a policy scope.

Every change locks the aggregate first and then its hosts in the order of their ids, so that changes queue and do not
deadlock. The constraints of the tables decide whether hosts may be together; this module words the refusals.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import aggregate_order_by, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory import hosts as all_hosts
from roost.compute.inventory.changes import host_changed
from roost.compute.inventory.scopes import check_not_targeted
from roost.errors import Conflict, Invalid, NotFound, RoostError
from roost.store.database import violated
from roost.store.pages import every_row
from roost.store.tables.compute import aggregate_hosts, aggregate_metadata, aggregates, hosts, scopes
from roost.turns import spread

ZONE = "availability_zone"
"""The metadata key that names the zone of an aggregate's hosts."""
SCOPE = "policy_scope"
"""The metadata key that names the policy scope of an aggregate."""

_LARGEST_ID = 2**31 - 1
_ONE_ZONE = "fk_aggregate_hosts_host_id_zone"
_ONE_PER_SCOPE = "uq_aggregate_hosts_host_id_scope_id"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate with its hosts; its metadata repeat its zone and name its scope."""

    id: int
    uuid: str
    name: str
    availability_zone: str | None
    hosts: tuple[str, ...]
    metadata: Mapping[str, str]
    created_at: datetime
    updated_at: datetime | None


class _StoredAggregate(NamedTuple):
    """An aggregate without its hosts, and with the name of its scope."""

    id: int
    uuid: str
    name: str
    availability_zone: str
    created_at: datetime
    updated_at: datetime | None
    scope: str | None


class _LockedAggregate(NamedTuple):
    """An aggregate that no other transaction can change."""

    id: int
    name: str
    availability_zone: str
    scope_id: int


class _Change(NamedTuple):
    """What is being done to an aggregate, and the error if it cannot be done."""

    verb: str
    error: type[RoostError]

    def refused(self, aggregate_id: int, reason: str) -> RoostError:
        return self.error(f"Cannot {self.verb} aggregate {aggregate_id}. Reason: {reason}.")


_ADD = _Change("add host to", Conflict)
_REMOVE = _Change("remove host from", Conflict)
_DELETE = _Change("remove host from", Invalid)
_UPDATE = _Change("update", Invalid)
_SET_METADATA = _Change("update metadata of", Invalid)


async def index(connection: AsyncConnection, *, aggregate_id: int | None = None) -> list[Aggregate]:
    """All aggregates, or the one with this id."""
    only = sa.true() if aggregate_id is None else aggregates.c.id == aggregate_id
    columns = (aggregates.c[name] for name in _StoredAggregate._fields[:-1])
    query = sa.select(*columns, scopes.c.name).outerjoin(scopes, scopes.c.id == aggregates.c.scope)
    rows = await every_row(await connection.execute(query.where(only).order_by(aggregates.c.id)))
    found = [_StoredAggregate._make(row) for row in rows]
    members, metadata = await _members(connection, only), await _metadata(connection, only)
    return await spread(lambda each: _aggregate(each, members.get(each.id, ()), metadata.get(each.id, {})), found)


async def show(connection: AsyncConnection, aggregate_id: int) -> Aggregate:
    """One aggregate."""
    found = await index(connection, aggregate_id=aggregate_id) if 0 < aggregate_id <= _LARGEST_ID else []
    if not found:
        raise _missing(aggregate_id)
    return found[0]


async def create(connection: AsyncConnection, name: str, zone: str | None) -> Aggregate:
    """Add an aggregate without hosts."""
    query = aggregates.insert().values(name=name, availability_zone=zone or "").returning(aggregates.c.id)
    try:
        aggregate_id = (await connection.execute(query)).scalar_one()
    except IntegrityError:
        raise Conflict(f"Aggregate {name} already exists.") from None
    return await show(connection, aggregate_id)


async def update(connection: AsyncConnection, aggregate_id: int, changes: Mapping[str, str | None]) -> Aggregate:
    """Change the `name` or the `availability_zone`."""
    aggregate = await _lock(connection, aggregate_id)
    if "name" in changes:
        query = aggregates.update().where(aggregates.c.id == aggregate_id).values(name=changes["name"])
        try:
            await connection.execute(query)
        except IntegrityError:
            raise Conflict(f"Aggregate {changes['name']} already exists.") from None
    if ZONE in changes:
        await _move(connection, aggregate, changes[ZONE], aggregate.scope_id, _UPDATE)
    return await show(connection, aggregate_id)


async def set_metadata(connection: AsyncConnection, aggregate_id: int, changes: Mapping[str, str | None]) -> Aggregate:
    """Merge metadata: null removes a key. The zone and the policy scope are set this way too."""
    aggregate = await _lock(connection, aggregate_id)
    zone = changes.get(ZONE, aggregate.availability_zone)
    scope_id = await _scope_id(connection, changes[SCOPE]) if SCOPE in changes else aggregate.scope_id
    if ZONE in changes or SCOPE in changes:
        await _move(connection, aggregate, zone, scope_id, _SET_METADATA, keep_no_zone=ZONE not in changes)
    plain = {key: value for key, value in changes.items() if key not in (ZONE, SCOPE)}
    await _merge_metadata(connection, aggregate_id, plain)
    touched = aggregates.update().where(aggregates.c.id == aggregate_id).values(updated_at=sa.func.now())
    await connection.execute(touched)
    return await show(connection, aggregate_id)


async def add_host(connection: AsyncConnection, aggregate_id: int, name: str) -> Aggregate:
    """Put a host into an aggregate."""
    if await all_hosts.find(connection, name=name) is None:
        raise NotFound(f"Compute host {name} could not be found.")
    aggregate = await _lock(connection, aggregate_id)
    host = await all_hosts.find(connection, name=name, lock=True)
    if host is None:
        raise NotFound(f"Compute host {name} could not be found.")
    zone = aggregate.availability_zone
    if host.servers and zone and not host.availability_zone:
        raise _ADD.refused(aggregate_id, _servers_would_move("added to", None, zone, host.servers))
    async with _placing(connection, _ADD, aggregate_id, [host.id], zone, aggregate.scope_id):
        joined = insert(aggregate_hosts).values(
            aggregate_id=aggregate_id, host_id=host.id, availability_zone=zone, scope_id=aggregate.scope_id
        )
        new = joined.on_conflict_do_nothing(constraint=aggregate_hosts.primary_key).returning(aggregate_hosts.c.host_id)
        if await connection.scalar(new) is None:
            raise Conflict(f"Aggregate {aggregate_id} already has host {name}.")
    await host_changed(connection, [host.id])
    return await show(connection, aggregate_id)


async def remove_host(connection: AsyncConnection, aggregate_id: int, name: str) -> Aggregate:
    """Take a host out of an aggregate."""
    missing = NotFound(f"Cannot remove host {name} in aggregate {aggregate_id}")
    try:
        aggregate = await _lock(connection, aggregate_id)
    except NotFound:
        raise missing from None
    host = await all_hosts.find(connection, name=name, lock=True)
    if host is None:
        raise missing
    membership = (aggregate_hosts.c.aggregate_id == aggregate_id, aggregate_hosts.c.host_id == host.id)
    if (await connection.execute(aggregate_hosts.delete().where(*membership))).rowcount == 0:
        raise missing
    zone = await _settle_zones(connection, [host.id])
    if host.servers and zone[host.id] != host.availability_zone:
        words = _servers_would_move("removed from", aggregate.availability_zone, None, host.servers)
        raise _REMOVE.refused(aggregate_id, words)
    await host_changed(connection, [host.id])
    return await show(connection, aggregate_id)


async def delete(connection: AsyncConnection, aggregate_id: int) -> None:
    """Remove an aggregate that has no hosts, and that no server group targets."""
    await _lock(connection, aggregate_id)
    await check_not_targeted(connection, aggregate_id)
    try:
        await connection.execute(aggregates.delete().where(aggregates.c.id == aggregate_id))
    except IntegrityError:
        raise _DELETE.refused(aggregate_id, "Host aggregate is not empty") from None


def _missing(aggregate_id: int) -> NotFound:
    return NotFound(f"Aggregate {aggregate_id} could not be found.")


def _aggregate(stored: _StoredAggregate, members: Sequence[str], metadata: Mapping[str, str]) -> Aggregate:
    number, uuid, name, zone, created_at, updated_at, scope = stored
    shown = {**metadata, **{key: value for key, value in ((ZONE, zone), (SCOPE, scope)) if value}}
    return Aggregate(number, uuid, name, zone or None, tuple(members), shown, created_at, updated_at)


async def _members(connection: AsyncConnection, only: sa.ColumnElement[bool]) -> Mapping[int, Sequence[str]]:
    in_order = sa.func.array_agg(aggregate_order_by(hosts.c.name, hosts.c.id))
    query = (
        sa.select(aggregate_hosts.c.aggregate_id, in_order.label("names"))
        .join(hosts, hosts.c.id == aggregate_hosts.c.host_id)
        .join(aggregates, aggregates.c.id == aggregate_hosts.c.aggregate_id)
        .where(only)
        .group_by(aggregate_hosts.c.aggregate_id)
    )
    return {row.aggregate_id: row.names for row in await every_row(await connection.execute(query))}


async def _metadata(connection: AsyncConnection, only: sa.ColumnElement[bool]) -> Mapping[int, Mapping[str, str]]:
    joined = aggregate_metadata.join(aggregates, aggregates.c.id == aggregate_metadata.c.aggregate_id)
    query = sa.select(aggregate_metadata).select_from(joined).where(only).order_by(aggregate_metadata.c.key)
    found: dict[int, dict[str, str]] = {}
    for aggregate_id, key, value in await connection.execute(query):
        found.setdefault(aggregate_id, {})[key] = value
    return found


async def _merge_metadata(connection: AsyncConnection, aggregate_id: int, changes: Mapping[str, str | None]) -> None:
    table = aggregate_metadata
    removed = [key for key, value in changes.items() if value is None]
    if removed:
        await connection.execute(table.delete().where(table.c.aggregate_id == aggregate_id, table.c.key.in_(removed)))
    rows = [
        {"aggregate_id": aggregate_id, "key": key, "value": value}
        for key, value in changes.items()
        if value is not None
    ]
    if rows:
        added = insert(table).values(rows)
        await connection.execute(
            added.on_conflict_do_update(constraint=table.primary_key, set_={"value": added.excluded.value})
        )


async def _lock(connection: AsyncConnection, aggregate_id: int) -> _LockedAggregate:
    columns = (aggregates.c[name] for name in _LockedAggregate._fields)
    query = sa.select(*columns).where(aggregates.c.id == aggregate_id).with_for_update()
    row = (await connection.execute(query)).one_or_none() if 0 < aggregate_id <= _LARGEST_ID else None
    if row is None:
        raise _missing(aggregate_id)
    return _LockedAggregate(*row)


async def _scope_id(connection: AsyncConnection, name: str | None) -> int:
    if name is None:
        return 0
    scope_id: int | None = await connection.scalar(sa.select(scopes.c.id).where(scopes.c.name == name))
    if scope_id is None:
        raise Invalid(f"Policy scope {name} could not be found.")
    return scope_id


async def _move(
    connection: AsyncConnection,
    aggregate: _LockedAggregate,
    zone: str | None,
    scope_id: int,
    change: _Change,
    *,
    keep_no_zone: bool = False,
) -> None:
    """Give an aggregate another zone or scope, and with it all its hosts."""
    if scope_id != aggregate.scope_id:
        await check_not_targeted(connection, aggregate.id)
    if not zone and not keep_no_zone:
        reason = f"Aggregate {aggregate.name} does not support empty named availability zone"
        raise change.refused(aggregate.id, reason)
    inside = sa.select(aggregate_hosts.c.host_id).where(aggregate_hosts.c.aggregate_id == aggregate.id)
    members = sa.select(hosts.c.id, hosts.c.servers).where(hosts.c.id.in_(inside)).order_by(hosts.c.id)
    rows = (await connection.execute(members.with_for_update())).all()
    host_ids = [row.id for row in rows]
    async with _placing(connection, change, aggregate.id, host_ids, zone or "", scope_id):
        values = {"availability_zone": zone or "", "scope_id": scope_id}
        await connection.execute(aggregates.update().where(aggregates.c.id == aggregate.id).values(**values))
    if zone != aggregate.availability_zone and any(row.servers for row in rows):
        raise change.refused(aggregate.id, "One or more hosts contain instances in this zone")
    await host_changed(connection, host_ids)


@asynccontextmanager
async def _placing(
    connection: AsyncConnection, change: _Change, aggregate_id: int, host_ids: Collection[int], zone: str, scope_id: int
) -> AsyncIterator[None]:
    """Change where hosts belong, and explain what the database refuses."""
    try:
        async with connection.begin_nested():
            yield
            await _settle_zones(connection, host_ids)
    except IntegrityError as error:
        others = sa.select(aggregates.c.name, aggregate_hosts.c.zone, aggregate_hosts.c.scope_id).join(
            aggregates, aggregates.c.id == aggregate_hosts.c.aggregate_id
        )
        elsewhere = (aggregate_hosts.c.host_id.in_(host_ids), aggregate_hosts.c.aggregate_id != aggregate_id)
        rows = (await connection.execute(others.where(*elsewhere))).all()
        if violated(error) == _ONE_ZONE:
            zones = sorted({row.zone for row in rows if row.zone not in (None, zone)})
            reason = f"One or more hosts already in availability zone(s) {zones}"
        elif violated(error) == _ONE_PER_SCOPE:
            names = sorted({row.name for row in rows if row.scope_id == scope_id})
            reason = f"One or more hosts already in aggregate(s) {names} of the same policy scope"
        else:
            raise
        raise change.refused(aggregate_id, reason) from None


async def _settle_zones(connection: AsyncConnection, host_ids: Collection[int]) -> Mapping[int, str]:
    """Give hosts the zone of their aggregates, and let the database check now that there is only one."""
    zone = sa.select(sa.func.coalesce(sa.func.min(aggregate_hosts.c.zone), ""))
    zone_of_host = zone.where(aggregate_hosts.c.host_id == hosts.c.id).scalar_subquery()
    settled = hosts.update().where(hosts.c.id.in_(host_ids)).values(availability_zone=zone_of_host)
    rows = (await connection.execute(settled.returning(hosts.c.id, hosts.c.availability_zone))).all()
    for moment in ("IMMEDIATE", "DEFERRED"):
        await connection.execute(sa.text(f"SET CONSTRAINTS {_ONE_ZONE} {moment}"))
    return {row.id: row.availability_zone for row in rows}


def _servers_would_move(done: str, before: str | None, after: str | None, servers: int) -> str:
    return (
        f"The host cannot be {done} the aggregate as the availability zone of the host would change from '{before}' "
        f"to '{after}' but the host already has {servers} instance(s). Changing the AZ of an existing instance is not "
        "supported by this action. Move the instances away from this host then try again. If you need to move the "
        "instances between AZs then you can use shelve_offload and unshelve to achieve this."
    )
