"""Moves: cold and live migration, resize, evacuation, shelving. All are scheduled under the group's rules.

A move claims room at its destination before anything else, in the transaction that starts it; a move that finds no host
raises, and the server stays as it was. The source keeps its claim until the move is finished, or confirmed.
"""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory import claims, flavors, quotas, zones
from roost.compute.inventory.claims import Claim, Usage
from roost.compute.inventory.flavors import ServerFlavor
from roost.compute.moves.relocation import relocate
from roost.compute.scheduling import servers
from roost.compute.scheduling.scheduler import Scheduler
from roost.compute.scheduling.servers import Actor, Server, ServerValues
from roost.compute.scheduling.steps import NO_STATE, RUNNING, SHUTDOWN, Resized, Transition, other_flavor
from roost.errors import Conflict, Invalid, NotFound, OverQuota
from roost.store.tables.compute import hosts
from roost.store.tables.servers import migrations

_MOVABLE = frozenset({"active", "stopped"})


async def _check_host(connection: AsyncConnection, name: str, *, must_run: bool = False) -> None:
    down = await connection.scalar(sa.select(hosts.c.forced_down).where(hosts.c.name == name))
    if down is None:
        raise Invalid(f"Compute host {name} could not be found.")
    if must_run and down:
        raise Invalid(f"Compute service of {name} is unavailable at this time.")


async def _record_move(
    connection: AsyncConnection, server: Server, host_id: int, kind: str, status: str, actor: Actor, flavor_id: str
) -> int:
    destination = await connection.scalar(sa.select(hosts.c.name).where(hosts.c.id == host_id))
    row = migrations.insert().values(
        server_id=server.id,
        type=kind,
        status=status,
        source=server.host,
        destination=destination,
        old_flavor_id=server.flavor.id,
        new_flavor_id=flavor_id,
        user_id=actor.user_id,
        project_id=actor.project_id,
    )
    return int((await connection.execute(row.returning(migrations.c.id))).scalar_one())


async def migrate(
    connection: AsyncConnection, scheduler: Scheduler, server: Server, actor: Actor, target: str | None
) -> None:
    """Move a server to another host, to be confirmed afterwards."""
    servers.check(server, "migrate", _MOVABLE, actor)
    if target is not None:
        await _check_host(connection, target)
        if target == server.host:
            raise Invalid(f"Cannot migrate to the host ({target}) where the server exists.")
    host_id = await relocate(connection, scheduler, server, server.flavor.size, target=target)
    await _start_resize(connection, server, actor, "migrate", "migration", host_id, server.flavor)


async def resize(
    connection: AsyncConnection, scheduler: Scheduler, server: Server, actor: Actor, flavor_id: str
) -> None:
    """Give a server another flavor, on this host or another, to be confirmed afterwards."""
    flavor, more = await check_resize(connection, scheduler, server, actor, flavor_id)
    host_id = await relocate(connection, scheduler, server, flavor.size, may_stay=True)
    await claims.count_usage(connection, {server.project_id: more})
    await _start_resize(connection, server, actor, "resize", "resize", host_id, flavor)


async def check_resize(
    connection: AsyncConnection, scheduler: Scheduler, server: Server, actor: Actor, flavor_id: str
) -> tuple[ServerFlavor, Usage]:
    """Refuse a resize that the state of the server, the flavor or a quota does not allow; else the flavor, and what the
    server counts for in addition."""
    servers.check(server, "resize", _MOVABLE, actor)
    flavor = await _flavor(connection, flavor_id, server.project_id)
    if flavor.id == server.flavor.id:
        raise Invalid("When resizing, instances must change flavor!")
    return flavor, await _check_quota(connection, scheduler, server, flavor)


async def _flavor(connection: AsyncConnection, flavor_id: str, project_id: str) -> ServerFlavor:
    try:
        return ServerFlavor.of(await flavors.show(connection, flavor_id, project_id=project_id))
    except NotFound as error:
        raise Invalid(error.message) from None


async def _check_quota(
    connection: AsyncConnection, scheduler: Scheduler, server: Server, flavor: ServerFlavor
) -> Usage:
    """What the server counts for in addition until it is clear which flavor stays; raises `OverQuota`."""
    more = Usage.of(server.flavor, flavor) - Usage.of(server.flavor, None)
    limits = await quotas.limits_of(connection, scheduler.settings.quota, {server.project_id}, {server.user_id})
    used = await quotas.lock_used(connection, limits)
    for share, allowed in limits.items():
        problem = quotas.excess(used[share], more, allowed)
        if problem:
            raise OverQuota(problem)
    return more


async def _start_resize(
    connection: AsyncConnection,
    server: Server,
    actor: Actor,
    action: str,
    kind: str,
    host_id: int,
    flavor: ServerFlavor,
) -> None:
    migration = await _record_move(connection, server, host_id, kind, "migrating", actor, flavor.id)
    moves = host_id != server.host_id
    assert server.host_id is not None
    step = Transition(
        vm_state="resized",
        host_id=host_id,
        flavor=flavor,
        migration=migration,
        migration_status="finished",
        launches=True,
        then=Resized(server.host_id, server.flavor, server.vm_state, server.power_state, migration),
        undo=Transition(server.vm_state, release=(host_id,) if moves else (), shrink=not moves),
    )
    await servers.start(connection, server, action, actor, "resize_migrating", step)


async def confirm(connection: AsyncConnection, server: Server, actor: Actor) -> None:
    """Confirm a move or a resize: the server keeps its new host and flavor."""
    servers.check(server, "confirmResize", frozenset({"resized"}), actor)
    kept = _kept(server)
    await _give_back(connection, server, kept.source, stays=server.host_id)
    await _end_resize(connection, server, kept, "confirmed", {})
    await _count_again(connection, server, server.flavor)
    await servers.record(connection, server.id, "confirmResize", actor, done=True)


async def revert(connection: AsyncConnection, server: Server, actor: Actor) -> None:
    """Revert a move or a resize: the server gets its old host and flavor back."""
    servers.check(server, "revertResize", frozenset({"resized"}), actor)
    kept = _kept(server)
    back: ServerValues = {"host_id": kept.source, "flavor": kept.flavor.to_json()}
    await _give_back(connection, server, server.host_id, stays=kept.source, flavor=kept.flavor)
    await _end_resize(connection, server, kept, "reverted", back)
    await _count_again(connection, server, kept.flavor)
    await servers.record(connection, server.id, "revertResize", actor, done=True)


def _kept(server: Server) -> Resized:
    if not isinstance(server.step, Resized):
        raise Conflict(f"Instance {server.id} has not been resized.")
    return server.step


async def _count_again(connection: AsyncConnection, server: Server, stays: ServerFlavor) -> None:
    """Count a server with the flavor that stays, and no longer with the other one."""
    less = Usage.of(stays, None) - Usage.of(server.flavor, other_flavor(server.step))
    await claims.count_usage(connection, {server.project_id: less})


async def _give_back(
    connection: AsyncConnection,
    server: Server,
    left: int | None,
    *,
    stays: int | None,
    flavor: ServerFlavor | None = None,
) -> None:
    """Release the host that the server leaves; where it stays on one host, claim there what it now takes."""
    assert left is not None
    assert stays is not None
    if left != stays:
        freed = await claims.give_up(connection, [(server.id, left)])
    else:
        freed = await claims.resize(connection, [Claim(server.id, stays, (flavor or server.flavor).size)])
    await claims.give_back(connection, freed, groups=[server.group_id] if server.group_id else [])


async def _end_resize(
    connection: AsyncConnection, server: Server, kept: Resized, status: str, values: ServerValues
) -> None:
    state: ServerValues = {"vm_state": kept.vm_state, "power_state": kept.power_state, "step": None}
    await servers.update(connection, server.id, {**state, **values})
    ended = migrations.update().where(migrations.c.id == kept.migration)
    await connection.execute(ended.values(status=status))


async def reset(connection: AsyncConnection, server: Server, vm_state: str) -> None:
    """Set the state of a server by hand. Whatever was under way is dropped: it keeps its host and its flavor."""
    held = await claims.held_by(connection, server.id)
    freed = await claims.give_up(connection, [(server.id, host_id) for host_id in held if host_id != server.host_id])
    if server.host_id is not None:
        freed += await claims.resize(connection, [Claim(server.id, server.host_id, server.flavor.size)])
    await claims.give_back(connection, freed, groups=[server.group_id] if server.group_id else [])
    await _count_again(connection, server, server.flavor)
    state: ServerValues = {"vm_state": vm_state, "task_state": None, "due_at": None, "step": None}
    await servers.update(connection, server.id, state)


async def live_migrate(
    connection: AsyncConnection,
    scheduler: Scheduler,
    server: Server,
    actor: Actor,
    target: str | None,
    *,
    forced: bool = False,
) -> None:
    """Move a running server to another host; to one that is `forced`, whatever the scheduler has against it but room
    and rules."""
    servers.check(server, "os-migrateLive", frozenset({"active", "paused"}), actor)
    if target is not None:
        await _check_host(connection, target, must_run=forced)
        if target == server.host:
            raise Invalid(f"Unable to migrate instance ({server.id}) to current host ({target}).")
    host_id = await relocate(connection, scheduler, server, server.flavor.size, target=target, forced=forced)
    migration = await _record_move(connection, server, host_id, "live-migration", "running", actor, server.flavor.id)
    step = Transition(
        host_id=host_id,
        launches=True,
        release=_source(server),
        migration=migration,
        undo=Transition(release=(host_id,)),
    )
    await servers.start(connection, server, "live-migration", actor, "migrating", step)


async def evacuate(
    connection: AsyncConnection,
    scheduler: Scheduler,
    server: Server,
    actor: Actor,
    target: str | None,
    *,
    stopped: bool,
    forced: bool = False,
) -> None:
    """Rebuild a server of a dead host on another one; on one that is `forced`, as for a live migration."""
    servers.check(server, "evacuate", frozenset({"active", "stopped", "error"}), actor)
    if server.host_id is None:
        raise Conflict(f"Instance {server.id} is on no host and cannot be evacuated.")
    if not server.host_down:
        raise Invalid(f"Compute service of {server.host} is still in use.")
    if target is not None:
        await _check_host(connection, target, must_run=forced)
        if target == server.host:
            raise Invalid("The target host can't be the same one.")
    host_id = await relocate(connection, scheduler, server, server.flavor.size, target=target, forced=forced)
    migration = await _record_move(connection, server, host_id, "evacuation", "accepted", actor, server.flavor.id)
    off = stopped or server.vm_state == "stopped"
    step = Transition(
        vm_state="stopped" if off else "active",
        power_state=SHUTDOWN if off else RUNNING,
        host_id=host_id,
        launches=True,
        release=_source(server),
        migration=migration,
    )
    await servers.start(connection, server, "evacuate", actor, "rebuilding", step)


async def shelve(connection: AsyncConnection, server: Server, actor: Actor) -> None:
    """Take a server off its host and keep it for later. As Nova does by default, the host is left at once."""
    servers.check(server, "shelve", frozenset({"active", "stopped", "paused", "suspended"}), actor)
    await _offload(connection, server, actor, "shelve", "shelving")


async def shelve_offload(connection: AsyncConnection, server: Server, actor: Actor) -> None:
    """Take a shelved server off its host, if it is still on one."""
    servers.check(server, "shelveOffload", frozenset({"shelved", "shelved_offloaded"}), actor)
    await _offload(connection, server, actor, "shelveOffload", "shelving_offloading")


async def _offload(connection: AsyncConnection, server: Server, actor: Actor, action: str, task: str) -> None:
    step = Transition("shelved_offloaded", NO_STATE, host_id=None, release=_source(server))
    await servers.start(connection, server, action, actor, task, step)


def _source(server: Server) -> tuple[int, ...]:
    """The host that a server leaves, if it is on one."""
    return () if server.host_id is None else (server.host_id,)


async def unshelve(
    connection: AsyncConnection,
    scheduler: Scheduler,
    server: Server,
    actor: Actor,
    *,
    target: str | None = None,
    zone: str | None = None,
    any_zone: bool = False,
) -> None:
    """Bring a shelved server back, to any host that its group allows."""
    servers.check(server, "unshelve", frozenset({"shelved", "shelved_offloaded"}), actor)
    if target is not None:
        await _check_host(connection, target)
    if zone is not None and not await zones.exists(connection, zone):
        raise Invalid("The requested availability zone is not available")
    if zone is not None or any_zone:
        await servers.update(connection, server.id, {"zone": zone})
        server = await servers.find(connection, server.id)
    host_id = await relocate(connection, scheduler, server, server.flavor.size, target=target)
    undo = Transition(server.vm_state, release=(host_id,))
    step = Transition("active", RUNNING, host_id, launches=True, undo=undo)
    await servers.start(connection, server, "unshelve", actor, "unshelving", step)


async def refused(connection: AsyncConnection, server_id: str, action: str, actor: Actor) -> None:
    """Note in the server's history that a move found no host."""
    server = await servers.find(connection, server_id, lock=True)
    await servers.record(connection, server.id, action, actor, error=True)
