"""Policy scopes: ways of dividing hosts that the deployer offers to server groups.

`host` and `availability_zone` are built in and cannot be changed. Of the others, each divides the hosts by its
aggregates; that no host is in two of them is a constraint of the database.

A scope's deployer chooses whether tenants may name its aggregates. Obfuscated identifiers are each tenant's own UUIDs:

    tenant_namespace = uuid5(scope's namespace, tenant's id)
    identifier       = uuid5(tenant_namespace, aggregate's id)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import starmap
from typing import Any, NamedTuple, TypedDict
from uuid import UUID, uuid5

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory import claims
from roost.compute.inventory.changes import host_changed
from roost.compute.inventory.hosts import DEFAULT_ZONE
from roost.errors import Conflict, Invalid, NotFound
from roost.placement.phrases import counted
from roost.placement.rules import AVAILABILITY_ZONE, HOST
from roost.store.database import violated
from roost.store.tables.compute import aggregate_hosts, aggregates, hosts, scopes
from roost.store.tables.servers import server_group_policies


@dataclass(frozen=True, slots=True)
class Scope:
    """A way of dividing hosts, and how its aggregates may be named."""

    id: int
    """0 for the scopes that are built in."""
    uuid: str
    name: str
    allow_identifiers: bool
    obfuscate_identifiers: bool
    namespace: UUID | None = None

    def identifier_for(self, project_id: str, identifier: str) -> str:
        """How this project names an aggregate. Where naming is not allowed the real name is hidden all the same."""
        if self.namespace is None or (self.allow_identifiers and not self.obfuscate_identifiers):
            return identifier
        return str(uuid5(uuid5(self.namespace, project_id), identifier))

    def names_for(self, project_id: str, aggregate: "ScopePart") -> tuple[str, ...]:
        """All that this project may call an aggregate: where nothing is hidden, also by the name its deployer gave."""
        own = self.identifier_for(project_id, aggregate.identifier)
        return (own, aggregate.name) if own == aggregate.identifier else (own,)


class ScopePart(NamedTuple):
    """One part of a scope: by the identifier that is stored, and by its name."""

    identifier: str
    name: str


HOST_SCOPE = Scope(0, HOST, HOST, allow_identifiers=False, obfuscate_identifiers=False)
ZONE_SCOPE = Scope(0, AVAILABILITY_ZONE, AVAILABILITY_ZONE, allow_identifiers=True, obfuscate_identifiers=False)
BUILT_IN = (HOST_SCOPE, ZONE_SCOPE)

_SCOPE = [
    scopes.c[name] for name in ("id", "uuid", "name", "allow_identifiers", "obfuscate_identifiers", "namespace_uuid")
]
_ZONE = sa.func.coalesce(sa.func.nullif(hosts.c.availability_zone, ""), DEFAULT_ZONE)


async def load_scopes(connection: AsyncConnection) -> dict[str, Scope]:
    """Every scope by its name, the built-in ones first; one query, good for all that one request shows."""
    rows = await connection.execute(sa.select(*_SCOPE).order_by(scopes.c.id))
    return {scope.name: scope for scope in (*BUILT_IN, *starmap(_scope, rows))}


async def lock_scopes(connection: AsyncConnection, names: Iterable[str]) -> dict[str, Scope]:
    """The scopes of these names, locked against changes until this transaction ends, and the built-in ones."""
    query = sa.select(*_SCOPE).where(scopes.c.name.in_(list(names))).order_by(scopes.c.id).with_for_update(read=True)
    made = starmap(_scope, await connection.execute(query))
    return {scope.name: scope for scope in (*BUILT_IN, *made)}


def _scope(id: int, uuid: str, name: str, allow: bool, obfuscate: bool, namespace: str) -> Scope:
    return Scope(id, uuid, name, allow, obfuscate, UUID(namespace))


async def aggregates_in(connection: AsyncConnection, scope: Scope) -> list[ScopePart]:
    """What a scope divides the hosts into. Single hosts have no names here, since no request can name them."""
    if scope == HOST_SCOPE:
        return []
    if scope == ZONE_SCOPE:
        names = await connection.scalars(sa.select(_ZONE).distinct().order_by(_ZONE))
        return [ScopePart(name, name) for name in names]
    query = sa.select(aggregates.c.id, aggregates.c.name).where(aggregates.c.scope_id == scope.id)
    return [ScopePart(str(number), name) for number, name in await connection.execute(query.order_by(aggregates.c.id))]


def aggregate_of(scope: Scope, host_id: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Which part of a scope a host is in; null for none."""
    if scope == HOST_SCOPE:
        return host_id
    if scope == ZONE_SCOPE:
        return sa.select(_ZONE).where(hosts.c.id == host_id).scalar_subquery()
    inside = sa.select(aggregates.c.id).join(aggregate_hosts, aggregate_hosts.c.aggregate_id == aggregates.c.id)
    return inside.where(aggregates.c.scope_id == scope.id, aggregate_hosts.c.host_id == host_id).scalar_subquery()


_LARGEST_ID = 2**31 - 1
_BUILT_IN_NAMES = frozenset(scope.name for scope in BUILT_IN)


async def index(connection: AsyncConnection) -> list[tuple[Scope, list[ScopePart]]]:
    """Every scope with its aggregates, the built-in ones first."""
    known = await load_scopes(connection)
    inside: dict[int, list[ScopePart]] = {}
    query = sa.select(aggregates.c.scope_id, aggregates.c.id, aggregates.c.name).where(aggregates.c.scope_id != 0)
    for scope_id, number, name in await connection.execute(query.order_by(aggregates.c.id)):
        inside.setdefault(scope_id, []).append(ScopePart(str(number), name))
    built_in = [(scope, await aggregates_in(connection, scope)) for scope in BUILT_IN]
    return [*built_in, *((scope, inside.get(scope.id, [])) for scope in known.values() if scope.id)]


async def show(connection: AsyncConnection, scope_uuid: str) -> tuple[Scope, list[ScopePart]]:
    """One scope with its aggregates."""
    scope = await find(connection, scope_uuid)
    return scope, await aggregates_in(connection, scope)


async def find(connection: AsyncConnection, scope_uuid: str, *, lock: bool = False) -> Scope:
    """One scope; locked against other changes if asked, and then it cannot be a built-in one."""
    for scope in BUILT_IN:
        if scope.uuid == scope_uuid and lock:
            raise Conflict(f"The policy scope '{scope.name}' is built in and cannot be changed.")
        if scope.uuid == scope_uuid:
            return scope
    query = sa.select(*_SCOPE).where(sa.cast(scopes.c.uuid, sa.Text) == scope_uuid)
    # Not so strong that an aggregate which is being tagged with this scope would have to wait.
    row = (await connection.execute(query.with_for_update(key_share=True) if lock else query)).one_or_none()
    if row is None:
        raise NotFound(f"Policy scope {scope_uuid} could not be found.")
    return _scope(*row)


class ScopeValues(TypedDict, total=False):
    """What is given of a scope when it is made or changed."""

    name: str
    allow_identifiers: bool
    obfuscate_identifiers: bool
    namespace_uuid: str


async def create(connection: AsyncConnection, values: ScopeValues) -> Scope:
    """Make a scope; its `name` must be given."""
    _check_name(values["name"])
    try:
        return _scope(*(await connection.execute(scopes.insert().values(values).returning(*_SCOPE))).one())
    except IntegrityError:
        raise _taken(values["name"]) from None


async def update(connection: AsyncConnection, scope_uuid: str, values: ScopeValues) -> Scope:
    """Change what was given at creation. Groups keep their targets, under the identifiers that now hold."""
    scope = await find(connection, scope_uuid, lock=True)
    _check_name(values.get("name", scope.name))
    if not values.get("allow_identifiers", scope.allow_identifiers):
        targeting = await _policies(connection, server_group_policies.c.aggregate_id.is_not(None), scope)
        if targeting:
            raise Conflict(
                f"Policy scope {scope.name}: identifiers are in use by {counted(targeting, 'server group')}."
            )
    try:
        changing = scopes.update().where(scopes.c.id == scope.id).values(values).returning(*_SCOPE)
        changed = _scope(*(await connection.execute(changing)).one())
    except IntegrityError:
        raise _taken(values["name"]) from None
    if changed.name != scope.name:
        await _renamed(connection, scope)
    return changed


async def _renamed(connection: AsyncConnection, scope: Scope) -> None:
    """Hosts and rules are remembered by the names of their scopes, and have to be looked at again."""
    policies = sa.select(server_group_policies.c.group_id).where(server_group_policies.c.scope_id == scope.id)
    group_ids = set((await connection.scalars(policies)).all())
    await claims.lock_groups(connection, group_ids)
    await claims.touch_groups(connection, group_ids)
    inside = sa.select(aggregate_hosts.c.host_id).where(aggregate_hosts.c.scope_id == scope.id)
    await host_changed(connection, (await connection.scalars(inside)).all())


async def delete(connection: AsyncConnection, scope_uuid: str) -> None:
    """Forget a scope that no group and no aggregate uses."""
    scope = await find(connection, scope_uuid, lock=True)
    users = await _policies(connection, sa.true(), scope)
    inside = len(await aggregates_in(connection, scope))
    if users or inside:
        used_by = [counted(number, noun) for number, noun in ((users, "server group"), (inside, "aggregate")) if number]
        raise Conflict(f"Policy scope {scope.name} is in use by {' and '.join(used_by)}.")
    try:
        await connection.execute(scopes.delete().where(scopes.c.id == scope.id))
    except IntegrityError:
        raise Conflict(f"Policy scope {scope.name} has just come into use.") from None


async def add_aggregate(connection: AsyncConnection, scope_uuid: str, aggregate_id: int) -> Scope:
    """Make an aggregate one of a scope's; refused where one of its hosts is in another of them."""
    scope = await find(connection, scope_uuid, lock=True)
    if await _lock_aggregate(connection, aggregate_id) not in (0, scope.id):
        raise Conflict(f"Aggregate {aggregate_id} is in another policy scope; remove it from there first.")
    await _move(connection, aggregate_id, scope)
    return scope


async def remove_aggregate(connection: AsyncConnection, scope_uuid: str, aggregate_id: int) -> Scope:
    """Take an aggregate out of a scope; refused where a group targets it."""
    scope = await find(connection, scope_uuid, lock=True)
    if await _lock_aggregate(connection, aggregate_id) != scope.id:
        raise NotFound(f"Aggregate {aggregate_id} is not in policy scope {scope.name}.")
    await check_not_targeted(connection, aggregate_id)
    await _move(connection, aggregate_id, None)
    return scope


async def check_not_targeted(connection: AsyncConnection, aggregate_id: int) -> None:
    """Raise `Conflict` where a group's policy names an aggregate, which the caller has locked."""
    users = await _policies(connection, server_group_policies.c.aggregate_id == aggregate_id)
    if users:
        raise Conflict(f"Aggregate {aggregate_id} is in use by the policies of {counted(users, 'server group')}.")


async def _move(connection: AsyncConnection, aggregate_id: int, scope: Scope | None) -> None:
    changed = aggregates.update().where(aggregates.c.id == aggregate_id).values(scope_id=scope.id if scope else 0)
    inside = sa.select(aggregate_hosts.c.host_id).where(aggregate_hosts.c.aggregate_id == aggregate_id)
    locked = sa.select(hosts.c.id).where(hosts.c.id.in_(inside)).order_by(hosts.c.id).with_for_update()
    host_ids = (await connection.scalars(locked)).all()
    try:
        async with connection.begin_nested():
            await connection.execute(changed)
    except IntegrityError as error:
        if scope is None or violated(error) != "uq_aggregate_hosts_host_id_scope_id":
            raise
        raise await _clash(connection, aggregate_id, scope) from None
    await host_changed(connection, host_ids)


async def _clash(connection: AsyncConnection, aggregate_id: int, scope: Scope) -> Conflict:
    here, there = aggregate_hosts.alias(), aggregate_hosts.alias()
    query = (
        sa.select(hosts.c.name, there.c.aggregate_id)
        .select_from(here)
        .join(there, sa.and_(there.c.host_id == here.c.host_id, there.c.scope_id == scope.id))
        .join(hosts, hosts.c.id == here.c.host_id)
        .where(here.c.aggregate_id == aggregate_id)
        .order_by(hosts.c.id)
        .limit(1)
    )
    row = (await connection.execute(query)).one()
    return Conflict(
        f"Host {row.name} of aggregate {aggregate_id} is in aggregate {row.aggregate_id}, which is in policy scope "
        f"{scope.name} already; a host is in at most one aggregate of a scope."
    )


async def _lock_aggregate(connection: AsyncConnection, aggregate_id: int) -> int:
    """The scope that an aggregate is in, 0 for none; it stays there until this transaction ends."""
    query = sa.select(aggregates.c.scope_id).where(aggregates.c.id == min(aggregate_id, _LARGEST_ID)).with_for_update()
    scope_id: int | None = await connection.scalar(query)
    if scope_id is None:
        raise NotFound(f"Aggregate {aggregate_id} could not be found.")
    return scope_id


async def _policies(connection: AsyncConnection, condition: sa.ColumnElement[bool], scope: Scope | None = None) -> int:
    """How many groups have a policy like this; never which: they belong to other people."""
    query = sa.select(sa.func.count(server_group_policies.c.group_id.distinct())).where(condition)
    if scope is not None:
        query = query.where(server_group_policies.c.scope_id == scope.id)
    return int((await connection.execute(query)).scalar_one())


def is_name(name: str) -> bool:
    """Whether a scope that is not built in may be called so."""
    return bool(name) and name not in _BUILT_IN_NAMES and _readable(name)


def _readable(name: str) -> bool:
    return not any(character in ":," or character.isspace() for character in name)


def _check_name(name: str) -> None:
    if name in _BUILT_IN_NAMES:
        raise Conflict(f"The policy scope '{name}' is built in.")
    if not _readable(name):
        raise Invalid(f"'{name}' cannot be the name of a policy scope: it must have no colons, commas or spaces.")


def _taken(name: str) -> Conflict:
    return Conflict(f"Policy scope {name} already exists.")
