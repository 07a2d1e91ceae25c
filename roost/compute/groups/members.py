"""The members of server groups: servers that join and leave, the limits on joining, and the notifications."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import groups, notifications
from roost.compute.groups.groups import Group
from roost.compute.inventory import claims, quotas
from roost.config import Settings
from roost.errors import Conflict, Invalid, NotFound, OverQuota
from roost.placement.rules import Rule, division_of
from roost.store.tables.servers import servers


async def add(
    connection: AsyncConnection, settings: Settings, group: Group, server_id: str, partition: int | None = None
) -> Group:
    """Make a server that exists a member, wherever it is: rules bind when scheduling, not here.

    Where the group is divided it gets the partition asked for, else that of the members around it, else the emptiest.
    """
    server = await _lock_server(connection, group, server_id)
    await groups.lock(connection, group.id)
    # Another transaction may have changed the policies after the group was read.
    rules = (await groups.rules_of(connection, [group.id]))[group.id]
    check_partition(group.id, rules, partition)
    if server.group_id == group.id:
        return group
    if server.group_id is not None:
        raise Conflict(f"Instance {server_id} is in server group {server.group_id}; remove it from there first.")
    await check_room(connection, settings, group.project_id, group.id, server.user_id)
    await _move(connection, server.id, group.id, group.id, partition)
    if division_of(rules):
        await groups.divide(connection, group.id)
    await announce_added(connection, settings, [(group.id, server.id)])
    return await groups.find(connection, group.id)


async def remove(connection: AsyncConnection, settings: Settings, group: Group, server_id: str) -> Group:
    """Take a server out of its group; it stays where it is."""
    server = await _lock_server(connection, group, server_id)
    await groups.lock(connection, group.id)
    if server.group_id != group.id:
        raise Conflict(f"Instance {server_id} is not in server group {group.id}.")
    await _move(connection, server.id, None, group.id, None)
    await announce_removed(connection, settings, [(group.id, server.id)])
    return await groups.find(connection, group.id)


class LockedServer(NamedTuple):
    """A server whose membership no other transaction can change."""

    id: str
    group_id: str | None
    user_id: str


async def lock_servers(connection: AsyncConnection, group: Group, server_ids: Iterable[str]) -> dict[str, LockedServer]:
    """Lock those of these servers that belong to the group's own project; those of others do not exist for it.

    To change several members, lock them all before the first change locks the group.
    """
    own = (servers.c.id.in_(list(server_ids)), servers.c.project_id == group.project_id)
    query = sa.select(servers.c.id, servers.c.group_id, servers.c.user_id).where(*own).order_by(servers.c.id)
    return {row.id: LockedServer(*row) for row in await connection.execute(query.with_for_update())}


async def check_room(
    connection: AsyncConnection, settings: Settings, project_id: str, group_id: str, user_id: str, servers_more: int = 1
) -> None:
    """Raise `OverQuota` unless a user may add this many servers to a group, which the caller has locked."""
    theirs = sa.func.count().filter(servers.c.user_id == user_id)
    query = sa.select(theirs, sa.func.count()).where(servers.c.group_id == group_id)
    limits = await quotas.limits(connection, settings.quota, project_id, user_id)
    check_limits(limits, settings, *(await connection.execute(query)).one(), servers_more)


def check_limits(limits: quotas.Limits, settings: Settings, theirs: int, everyone: int, more: int) -> None:
    """Raise `OverQuota` unless a group with so many members of the user, and of everyone, may get so many more."""
    for limit, present in ((limits["server_group_members"], theirs), (settings.group_max_members, everyone)):
        if 0 <= limit < present + more:
            raise OverQuota("Quota exceeded, too many servers in group")


def check_partition(group_id: str, rules: Sequence[Rule], partition: int | None) -> None:
    """Raise `Invalid` unless a group with these rules has the requested partition."""
    if partition is None:
        return
    divided = division_of(rules)
    if divided is None or divided.partitions is None:
        raise Invalid(f"Server group {group_id} is not divided into partitions: leave out partition {partition}.")
    if not 1 <= partition <= divided.partitions:
        raise Invalid(f"Server group {group_id} has the partitions 1 to {divided.partitions}, not {partition}.")


async def announce_added(connection: AsyncConnection, settings: Settings, members: Iterable[tuple[str, str]]) -> None:
    """Announce, once this transaction commits, that these servers joined these groups, as (group, server)."""
    await _announce(connection, settings, notifications.ADD_MEMBER, members)


async def announce_removed(connection: AsyncConnection, settings: Settings, members: Iterable[tuple[str, str]]) -> None:
    """Announce, once this transaction commits, that these servers left these groups, as (group, server)."""
    await _announce(connection, settings, notifications.REMOVE_MEMBER, members)


async def _announce(
    connection: AsyncConnection, settings: Settings, event: str, members: Iterable[tuple[str, str]]
) -> None:
    pairs = list(members)
    if not notifications.wanted(settings) or not pairs:
        return
    found = await groups.brief(connection, [group_id for group_id, _ in pairs])
    announced = (replace(found[group_id], members=(server_id,)) for group_id, server_id in pairs if group_id in found)
    await notifications.write(connection, event, map(groups.payload, announced))


async def _lock_server(connection: AsyncConnection, group: Group, server_id: str) -> LockedServer:
    server = (await lock_servers(connection, group, [server_id])).get(server_id)
    if server is None:
        raise NotFound(f"Instance {server_id} could not be found.")
    return server


async def _move(
    connection: AsyncConnection, server_id: str, group_id: str | None, changed: str, partition: int | None
) -> None:
    values = {"group_id": group_id, "partition": partition}
    await connection.execute(servers.update().where(servers.c.id == server_id).values(values))
    await claims.touch_groups(connection, [changed])
