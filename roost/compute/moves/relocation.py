"""Another host for a server that exists: chosen under the rules of its group, for the caller to claim."""

import random
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups.group_cache import CachedGroup
from roost.compute.inventory import claims
from roost.compute.inventory.claims import Claim
from roost.compute.inventory.live_fleet import LiveFleet, announce_claims
from roost.compute.scheduling import records
from roost.compute.scheduling.request import hinted_hosts
from roost.compute.scheduling.scheduler import Scheduler
from roost.compute.scheduling.servers import Server
from roost.errors import Invalid, Unavailable
from roost.placement.decision import Decision, Move, Request
from roost.placement.fleet import Members, Resources
from roost.placement.scheduler import place
from roost.store.tables.servers import servers


class NoValidHost(Invalid):
    """No host may take the server; the message says why."""


async def relocate(
    connection: AsyncConnection,
    scheduler: Scheduler,
    server: Server,
    resources: Resources,
    *,
    target: str | None = None,
    may_stay: bool = False,
    forced: bool = False,
) -> int:
    """Claim room for a server elsewhere (or, if it `may_stay`, where it is), in the caller's transaction, which holds
    the server's row; the host's id. Raises `NoValidHost`, and then nothing was changed.

    A target that is `forced` may be disabled, in another zone, or not where the server's hints want it; it must have
    the room, and the rules of the group hold all the same.
    """
    live = scheduler.live
    await live.sync(connection)
    group, partition = None, server.partition
    if server.group_id is not None:
        locked = await claims.lock_groups(connection, [server.group_id])
        await scheduler.groups.load_locked(connection, locked)
        group = scheduler.groups.get(server.group_id) if locked else None
        # It may have got one just now.
        partition = await connection.scalar(sa.select(servers.c.partition).where(servers.c.id == server.id))
    near, apart = (None, []) if forced else await hinted_hosts(connection, live, server.hints, server.project_id)
    read_again = held = False
    for _ in range(claims.ATTEMPTS):
        request = _request(live, server, resources, group, target, may_stay)
        request = replace(request, same_host=near or None, different_host=apart, partition=partition)
        decision = _force(live, request) if forced else place(live.fleet, request)
        if not decision and not read_again:
            read_again = True
            await live.read_room(connection)
            continue
        if not decision:
            raise NoValidHost(f"No valid host was found. {records.sentence(decision)}")
        host = live.host(decision.hosts[0])
        if host.id == server.host_id:
            if await _resize_claim(connection, live, server, host.id, resources, wait=not held):
                return host.id
        elif await live.can_take(connection, {host.id: [resources]}, wait=not held, forced=forced):
            await claims.take(connection, [Claim(server.id, host.id, resources)])
            await claims.touch_groups(connection, [server.group_id] if server.group_id else [])
            await announce_claims(connection, [host.id])
            return host.id
        held, read_again = True, False
    raise Unavailable("The hosts chosen were taken by others each time; try again.")


def _request(
    live: LiveFleet, server: Server, resources: Resources, group: CachedGroup | None, target: str | None, may_stay: bool
) -> Request:
    source = None if server.host_id is None else live.index(server.host_id)
    return Request(
        resources=resources,
        rules=group.rules if group else (),
        members=group.members if group else Members(),
        zone=server.zone,
        targets=live.targets(target),
        moving=None if source is None else Move(source, server.flavor.size, may_stay),
        seed=random.getrandbits(32),
    )


def _force(live: LiveFleet, request: Request) -> Decision:
    """A decision on the one target, as if it took servers, and whatever its zone."""
    fleet = live.fleet.snapshot()
    for host in request.targets or ():
        fleet.enable(host)
    return place(fleet, replace(request, zone=None))


async def _resize_claim(
    connection: AsyncConnection, live: LiveFleet, server: Server, host_id: int, resources: Resources, *, wait: bool
) -> bool:
    """Keep room for the larger of what the server had and what it becomes, on the host where it stays."""
    held = server.flavor.size
    both = Resources(*(max(old, new) for old, new in zip(held, resources, strict=True)))
    more = Resources(*(new - old for old, new in zip(held, both, strict=True)))
    if not await live.can_take(connection, {host_id: [more]}, wait=wait):
        return False
    await claims.give_back(connection, await claims.resize(connection, [Claim(server.id, host_id, both)]))
    return True
