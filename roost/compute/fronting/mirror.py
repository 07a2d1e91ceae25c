"""Nova's hosts, aggregates, groups and members in Roost's own tables: whatever reads those works on a real cloud.

Each function takes what Nova says and writes what is different, in the caller's transaction. What Roost adds is kept: a
group's rules and scopes, and which members were added or removed by hand.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from prometheus_client import Counter as Metric
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.fronting import reservations
from roost.compute.groups import groups, members
from roost.compute.inventory import claims
from roost.compute.inventory import hosts as all_hosts
from roost.compute.inventory.aggregates import SCOPE
from roost.compute.inventory.changes import host_changed
from roost.compute.inventory.hosts import ComputeHost
from roost.compute.inventory.live_fleet import announce_claims
from roost.compute.inventory.scopes import is_name
from roost.config import Settings
from roost.errors import Unavailable
from roost.placement.fleet import Resources
from roost.placement.rules import Rule
from roost.store import database
from roost.store.locks import AdvisoryLock, hold
from roost.store.tables.compute import aggregate_hosts, aggregate_metadata, aggregates, hosts, scopes
from roost.store.tables.servers import claims as claims_table
from roost.store.tables.servers import server_group_policies, server_groups, servers

logger = logging.getLogger(__name__)

REFUSED = Metric("roost_front_refused", "Looks at Nova that ended because what it said could not be right.")


async def take_inventory(connection: AsyncConnection) -> None:
    """Keep others from writing Nova's hosts and aggregates until this transaction ends, to read and write in one go.
    Nova may take a minute to list its hosts, and servers that boot must not wait for that: groups have their own
    turn, which comes after this one where both are needed."""
    await hold(connection, AdvisoryLock.INVENTORY)
    await database.patient(connection)


async def take_turn(connection: AsyncConnection) -> None:
    """Keep others from writing Nova's groups until this transaction ends, to read and write in one go."""
    await hold(connection, AdvisoryLock.MIRROR)
    await database.patient(connection)


async def hold_off(connection: AsyncConnection) -> None:
    """Keep others from taking over Nova's groups until this transaction ends: what it makes or deletes on both sides
    must not be mistaken for something that others did."""
    await hold(connection, AdvisoryLock.MIRROR, shared=True)
    await database.patient(connection)


class Implausible(Unavailable):
    """What Nova says cannot be right."""


@dataclass(frozen=True, slots=True)
class NovaHost:
    """A compute host of Nova's."""

    name: str
    address: str
    enabled: bool
    disabled_reason: str | None
    up: bool
    total: Resources
    used: Resources
    full: bool = False
    """Placement offers nothing of it, and so does not say how large it is: `total` is without allocation ratios."""


@dataclass(frozen=True, slots=True)
class NovaAggregate:
    """An aggregate of Nova's; it has the same id here."""

    id: int
    uuid: str
    name: str
    zone: str
    hosts: tuple[str, ...]
    metadata: Mapping[str, str]

    @property
    def scope(self) -> str | None:
        """The scope that its metadata name, if that can be one."""
        name = self.metadata.get(SCOPE)
        if name is None or is_name(name):
            return name
        logger.warning("aggregate %s names the policy scope '%s', which cannot be one", self.name, name)
        return None


@dataclass(frozen=True, slots=True)
class NovaGroup:
    """A server group of Nova's."""

    id: str
    name: str
    project_id: str
    user_id: str
    rule: Rule
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NovaServer:
    """What a group has to know of a server of Nova's."""

    id: str
    name: str
    project_id: str
    user_id: str
    host: str | None
    resources: Resources
    vm_state: str
    task_state: str | None
    launched_at: datetime | None
    settled: bool
    """Whether it is on one host only: neither being made, nor moving, nor waiting for its move to be confirmed."""
    zone: str | None = None
    """The zone that it was asked for in, and that Nova does not let it leave; None also where Nova does not say."""
    place: str | None = None
    """The token of the planned place that it was made for."""


# Hosts and aggregates


async def check_cloud(connection: AsyncConnection, all_hosts: Sequence[NovaHost]) -> None:
    """Raise `Implausible` if Nova has none of the hosts that are known."""
    known = set(await connection.scalars(sa.select(hosts.c.name)))
    if known and known.isdisjoint(host.name for host in all_hosts):
        raise Implausible(
            f"None of the {len(known)} hosts that Roost knows is in this Nova: is it another cloud or region? Nothing "
            "was changed. If they are gone for good, run `roost front forget --all`."
        )


async def put_inventory(
    connection: AsyncConnection, all_hosts: Sequence[NovaHost], all_aggregates: Sequence[NovaAggregate]
) -> None:
    """Store every host and every aggregate, which the engine whose turn it is has read."""
    changed = await _put_hosts(connection, all_hosts)
    changed |= await _put_aggregates(connection, all_aggregates)
    await host_changed(connection, changed)


async def _put_hosts(connection: AsyncConnection, wanted: Sequence[NovaHost]) -> set[int]:
    known = {host.name: host for host in await all_hosts.index(connection)}
    rows = {host.name: _host_row(host, known.get(host.name)) for host in wanted}
    changed = await _lose_hosts(connection, [row.id for name, row in known.items() if name not in rows])
    new = [row for name, row in rows.items() if name not in known]
    if new:
        changed |= set(await connection.scalars(insert(hosts).returning(hosts.c.id), new))
    fuller = []
    for name, row in rows.items():
        before = known.get(name)
        different = {} if before is None else _different(before, row)
        if before is not None and different:
            await connection.execute(
                hosts.update().where(hosts.c.id == before.id).values(**different, room_version=hosts.c.room_version + 1)
            )
            fuller.append(before.id)
            if different.keys() & {"enabled", "forced_down", *Resources._fields}:
                changed.add(before.id)
    await announce_claims(connection, fuller)
    return changed


def _different(stored: object, wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in wanted.items() if getattr(stored, key) != value}


def _host_row(host: NovaHost, before: ComputeHost | None) -> dict[str, Any]:
    """A host as it is stored; more than all of a resource cannot be in use. A full one is as large as it was before."""
    least = before._asdict() if host.full and before is not None else {}
    total = {name: max(least.get(name, 0), amount) for name, amount in host.total._asdict().items()}
    taken = total if host.full else host.used._asdict()
    used = {f"{name}_used": max(0, min(amount, total[name])) for name, amount in taken.items()}
    state = {"enabled": host.enabled, "disabled_reason": host.disabled_reason, "forced_down": not host.up}
    return {"name": host.name, "address": host.address, **state, **total, **used}


async def _lose_hosts(connection: AsyncConnection, host_ids: Collection[int]) -> set[int]:
    """Hosts that Nova does not list: those with servers are kept as down, for a cell that does not answer hides its
    hosts, and their servers still count; the others are forgotten."""
    if not host_ids:
        return set()
    claimed = sa.select(claims_table.c.host_id).where(claims_table.c.host_id.in_(host_ids))
    used = set(
        await connection.scalars(claimed.union(sa.select(servers.c.host_id).where(servers.c.host_id.in_(host_ids))))
    )
    down = hosts.update().where(hosts.c.id.in_(used), ~hosts.c.forced_down).values(forced_down=True)
    fallen = set(await connection.scalars(down.returning(hosts.c.id)))
    return fallen | await _forget_hosts(connection, set(host_ids) - used)


async def forget_hosts_but(connection: AsyncConnection, names: Collection[str]) -> list[str]:
    """Delete the hosts that have none of these names, whatever is on them; returns their names."""
    gone = {row.id: row.name for row in await connection.execute(sa.select(hosts).where(hosts.c.name.not_in(names)))}
    await host_changed(connection, await _forget_hosts(connection, gone.keys()))
    return sorted(gone.values())


async def _forget_hosts(connection: AsyncConnection, host_ids: Collection[int]) -> set[int]:
    if host_ids:
        await connection.execute(claims_table.delete().where(claims_table.c.host_id.in_(host_ids)))
        left = servers.update().where(servers.c.host_id.in_(host_ids)).values(host_id=None)
        await connection.execute(left)
        await connection.execute(aggregate_hosts.delete().where(aggregate_hosts.c.host_id.in_(host_ids)))
        await connection.execute(hosts.delete().where(hosts.c.id.in_(host_ids)))
    return set(host_ids)


async def _put_aggregates(connection: AsyncConnection, wanted: Sequence[NovaAggregate]) -> set[int]:
    scope_ids = await _put_scopes(connection, {each.scope for each in wanted if each.scope})
    host_ids = {row.name: row.id for row in await connection.execute(sa.select(hosts.c.name, hosts.c.id))}
    inside = _undisputed(wanted, scope_ids, host_ids)
    columns = (aggregates.c.name, aggregates.c.availability_zone, aggregates.c.scope_id)
    known = {number: stored for number, *stored in await connection.execute(sa.select(aggregates.c.id, *columns))}
    before: dict[int, set[int]] = {}
    for row in await connection.execute(sa.select(aggregate_hosts.c.aggregate_id, aggregate_hosts.c.host_id)):
        before.setdefault(row.aggregate_id, set()).add(row.host_id)
    gone = known.keys() - {each.id for each in wanted}
    different = [
        each
        for each in wanted
        if known.get(each.id) != [each.name, each.zone, scope_ids.get(each.scope or "", 0)]
        or before.get(each.id, set()) != inside[each.id]
    ]
    touched = {each.id for each in different} | {number for number in gone if before.get(number)}
    moved = set[int]().union(*(before.get(number, set()) | inside.get(number, set()) for number in touched))
    await connection.execute(aggregate_hosts.delete().where(aggregate_hosts.c.aggregate_id.in_(touched)))
    await _forget_aggregates(connection, gone)
    for each in different:
        values = {"name": each.name, "availability_zone": each.zone, "scope_id": scope_ids.get(each.scope or "", 0)}
        made = insert(aggregates).values(id=each.id, uuid=each.uuid, **values)
        await connection.execute(made.on_conflict_do_update(index_elements=[aggregates.c.id], set_=values))
    await _put_zones(connection, wanted, host_ids)
    rows = [
        {
            "aggregate_id": each.id,
            "host_id": host_id,
            "availability_zone": each.zone,
            "scope_id": scope_ids.get(each.scope or "", 0),
        }
        for each in different
        for host_id in inside[each.id]
    ]
    if rows:
        await connection.execute(aggregate_hosts.insert(), rows)
    await _put_metadata(connection, wanted)
    return moved


async def _put_scopes(connection: AsyncConnection, names: Collection[str]) -> dict[str, int]:
    """The ids of all scopes; those that only Nova's aggregates name are made."""
    query = sa.select(scopes.c.name, scopes.c.id)
    known = {row.name: row.id for row in await connection.execute(query)}
    if names - known.keys():
        new = [{"name": name} for name in sorted(names - known.keys())]
        await connection.execute(insert(scopes).on_conflict_do_nothing(), new)
        known = {row.name: row.id for row in await connection.execute(query)}
    return known


def _undisputed(
    wanted: Iterable[NovaAggregate], scope_ids: Mapping[str, int], host_ids: Mapping[str, int]
) -> dict[int, set[int]]:
    """The hosts of each aggregate, without those that another one of the same scope has too: Nova lets that happen, and
    it is unclear which of the two counts."""
    everywhere = Counter((each.scope, name) for each in wanted for name in each.hosts if each.scope)
    disputed = {key for key, times in everywhere.items() if times > 1}
    for scope, name in sorted(disputed, key=str):
        logger.warning("host %s is in several aggregates of policy scope %s, and counts in none", name, scope)
    return {
        each.id: {host_ids[name] for name in each.hosts if name in host_ids and (each.scope, name) not in disputed}
        for each in wanted
    }


async def _forget_aggregates(connection: AsyncConnection, gone: Collection[int]) -> None:
    """Those that a group targets are kept without hosts: nothing can be inside an aggregate that is gone."""
    query = sa.select(server_group_policies.c.aggregate_id).where(server_group_policies.c.aggregate_id.in_(gone))
    targeted = set(await connection.scalars(query))
    await connection.execute(aggregates.delete().where(aggregates.c.id.in_(set(gone) - targeted)))


async def _put_zones(connection: AsyncConnection, wanted: Iterable[NovaAggregate], host_ids: Mapping[str, int]) -> None:
    zones = {host_ids[name]: each.zone for each in wanted if each.zone for name in each.hosts if name in host_ids}
    for row in (await connection.execute(sa.select(hosts.c.id, hosts.c.availability_zone))).all():
        zone = zones.get(row.id, "")
        if zone != row.availability_zone:
            await connection.execute(hosts.update().where(hosts.c.id == row.id).values(availability_zone=zone))


async def _put_metadata(connection: AsyncConnection, wanted: Iterable[NovaAggregate]) -> None:
    now = {(each.id, key): value for each in wanted for key, value in each.metadata.items()}
    table = aggregate_metadata
    before = {(row.aggregate_id, row.key): row.value for row in await connection.execute(sa.select(table))}
    for number, key in before.keys() - now.keys():
        await connection.execute(table.delete().where(table.c.aggregate_id == number, table.c.key == key))
    rows = [
        {"aggregate_id": number, "key": key, "value": value}
        for (number, key), value in now.items()
        if before.get((number, key)) != value
    ]
    if rows:
        put = insert(table)
        await connection.execute(
            put.on_conflict_do_update(constraint=table.primary_key, set_={"value": put.excluded.value}), rows
        )


# Groups and their members


async def unknown_groups(connection: AsyncConnection, wanted: Iterable[NovaGroup]) -> set[str]:
    """The ids of the groups that are not known here."""
    return {each.id for each in wanted} - await all_groups(connection)


async def unlisted_groups(
    connection: AsyncConnection, listed: Iterable[NovaGroup], at: datetime
) -> tuple[set[str], int]:
    """The groups that were there `at` a moment and are not among those listed, and how many there are in all."""
    there = sa.select(server_groups.c.id).where(
        server_groups.c.created_at < at, server_groups.c.missing_since.is_(None)
    )
    known = set(await connection.scalars(there))
    return known - {each.id for each in listed}, len(known)


async def put_groups(
    connection: AsyncConnection, settings: Settings, wanted: Sequence[NovaGroup], *, missing: Collection[str] = ()
) -> None:
    """Take over groups that were made in Nova itself. Groups that Nova no longer has are hidden, and kept for a while
    with their rules; one that comes back has them again. The engine whose turn it is has read them."""
    unknown = await unknown_groups(connection, wanted)
    for each in wanted:
        if each.id in unknown:
            await groups.adopt(
                connection, each.id, name=each.name, rule=each.rule, project_id=each.project_id, user_id=each.user_id
            )
    if back := await groups.mark_found(connection, [each.id for each in wanted]):
        logger.info("Nova lists these server groups again: %s", ", ".join(sorted(back)))
    for lost in await groups.mark_missing(connection, settings, missing):
        logger.warning(
            "Nova does not have server group %s (%s) any more: its rules are kept for %s days",
            lost.id,
            lost.name,
            settings.group_missing_days or "unlimited",
        )
    if settings.group_missing_days:
        oldest = sa.func.now() - sa.func.make_interval(0, 0, 0, settings.group_missing_days)
        over = sa.select(server_groups.c.id).where(server_groups.c.missing_since < oldest)
        await forget_groups(connection, settings, set(await connection.scalars(over)))


async def forget_groups(connection: AsyncConnection, settings: Settings, group_ids: Iterable[str]) -> None:
    """Delete groups with their rules; their members stay, and belong to none."""
    for group_id in sorted(group_ids):
        await groups.delete(connection, settings, await groups.find(connection, group_id, or_missing=True))


async def all_groups(connection: AsyncConnection) -> set[str]:
    """The ids of all groups, missing ones included."""
    return set(await connection.scalars(sa.select(server_groups.c.id)))


class MissingGroup(NamedTuple):
    """A group that is hidden because Nova does not have it any more."""

    id: str
    name: str
    project_id: str
    missing_since: datetime


async def missing_groups(connection: AsyncConnection) -> list[MissingGroup]:
    """The groups that Nova does not have any more."""
    columns = (server_groups.c[name] for name in MissingGroup._fields)
    query = sa.select(*columns).where(server_groups.c.missing_since.is_not(None)).order_by(server_groups.c.number)
    return [MissingGroup(*row) for row in await connection.execute(query)]


async def missing_members(connection: AsyncConnection, wanted: Iterable[NovaGroup]) -> dict[str, str]:
    """The group of each member that Nova lists and that is not known here."""
    listed = {member: group.id for group in wanted for member in group.members}
    known = set(await connection.scalars(sa.select(servers.c.id).where(servers.c.id.in_(listed.keys()))))
    return {member: group_id for member, group_id in listed.items() if member not in known}


async def followed(connection: AsyncConnection, group_id: str | None = None) -> set[str]:
    """The servers that are followed here: of one group, or all."""
    query = sa.select(servers.c.id)
    return set(await connection.scalars(query if group_id is None else query.where(servers.c.group_id == group_id)))


class _FollowedServer(NamedTuple):
    """A server as it is stored."""

    id: str
    group_id: str | None
    name: str
    project_id: str
    user_id: str
    flavor: Mapping[str, int]
    vm_state: str
    task_state: str | None
    launched_at: datetime | None
    zone: str | None
    host_id: int | None
    created_at: datetime
    updated_at: datetime | None


async def put_servers(
    connection: AsyncConnection,
    settings: Settings,
    wanted: Iterable[NovaServer],
    *,
    at: datetime,
    new: Mapping[str, str | None] | None = None,
    gone: Collection[str] = (),
) -> None:
    """Where servers were `at` a moment. Those that are followed are brought up to date, `new` ones are followed from
    now on as members of their group, and those `gone` are forgotten; what was reserved since then stands."""
    found = {each.id: each for each in wanted}
    host_ids = {row.name: row.id for row in await connection.execute(sa.select(hosts.c.name, hosts.c.id))}
    query = sa.select(*(servers.c[name] for name in _FollowedServer._fields)).where(servers.c.id.in_([*found, *gone]))
    rows = await connection.execute(query.order_by(servers.c.id).with_for_update())
    known = {row.id: _FollowedServer(*row) for row in rows}
    joining = {server_id: group for server_id, group in (new or {}).items() if server_id in found.keys() - known.keys()}
    affected = {server.group_id for server in known.values()} | set(joining.values())
    locked = await claims.lock_groups(connection, {group for group in affected if group is not None})
    moved: set[str | None] = set()
    for server_id, server in known.items():
        if (server.updated_at or server.created_at) >= at:
            continue
        if server_id in gone:
            await _forget_server(connection, settings, server)
            moved.add(server.group_id)
        elif await _put_server(connection, server, found[server_id], host_ids):
            moved.add(server.group_id)
    for server_id, group_id in joining.items():
        if (group_id is None or group_id in locked) and await _follow(connection, found[server_id], group_id, host_ids):
            moved.add(group_id)
    await claims.touch_groups(connection, [group_id for group_id in locked if group_id in moved])


def _server_row(server: NovaServer) -> dict[str, Any]:
    """A server as it is stored, apart from its host and its group."""
    return {
        "name": server.name,
        "project_id": server.project_id,
        "user_id": server.user_id,
        "flavor": server.resources._asdict(),
        "vm_state": server.vm_state,
        "task_state": server.task_state,
        "launched_at": server.launched_at,
        "zone": server.zone,
    }


async def _put_server(
    connection: AsyncConnection, stored: _FollowedServer, server: NovaServer, host_ids: Mapping[str, int]
) -> bool:
    """Bring a server up to date; says whether it takes other places than before."""
    host_id = host_ids.get(server.host or "")
    different = _different(stored, {**_server_row(server), "host_id": host_id})
    if different:
        await connection.execute(servers.update().where(servers.c.id == server.id).values(**different))
    held = set() if server.settled else set(await claims.held_by(connection, server.id))
    return await reservations.occupy(connection, server.id, held | {host_id}) or "launched_at" in different


async def _follow(
    connection: AsyncConnection, server: NovaServer, group_id: str | None, host_ids: Mapping[str, int]
) -> bool:
    """Follow a server from now on, unless a scheduler has just reserved a place for it, which then stands."""
    host_id = host_ids.get(server.host or "")
    values = {
        "id": server.id,
        "hostname": server.name,
        "reservation_id": "",
        "group_id": group_id,
        "hints": {} if group_id is None else {"group": group_id},
        "host_id": host_id,
        **_server_row(server),
    }
    new = insert(servers).values(values).on_conflict_do_nothing().returning(servers.c.id)
    if await connection.scalar(new) is None:
        return False
    return await reservations.occupy(connection, server.id, {host_id})


async def _forget_server(connection: AsyncConnection, settings: Settings, server: _FollowedServer) -> None:
    await connection.execute(servers.delete().where(servers.c.id == server.id))
    if server.group_id is not None:
        await members.announce_removed(connection, settings, [(server.group_id, server.id)])
