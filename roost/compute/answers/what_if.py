"""Decisions without effect: what would become of a request if it were made now."""

from dataclasses import dataclass, replace
from functools import partial

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers import explain
from roost.compute.groups import members
from roost.compute.scheduling.request import hinted_hosts
from roost.compute.scheduling.scheduler import Scheduler
from roost.compute.scheduling.servers import Server
from roost.placement import record as placement
from roost.placement.decision import Decision, Move, Request
from roost.placement.fleet import Fleet, Members, Resources
from roost.placement.record import Record
from roost.placement.remedy import Remedy, remedies
from roost.placement.rules import Rule
from roost.placement.scheduler import place

_LARGE = 20
"""How many servers are placed at once without a process for it: that takes less time than asking one."""


@dataclass(frozen=True, slots=True)
class HypotheticalDecision:
    """What a decision came to, as it would be stored."""

    decision: Decision
    record: Record
    help: tuple[Remedy, ...] = ()
    """The smallest changes, one at a time, that would turn a refusal into a placement, on request."""


async def decide(scheduler: Scheduler, request: Request, owner: str, *, helping: bool = False) -> HypotheticalDecision:
    """Decide on the fleet as it is now, for the project that asks. No connection is held meanwhile, and a request is
    refused only after the room has been read again."""
    async with scheduler.database.begin() as connection:
        await scheduler.live.sync(connection)
    fleet = scheduler.live.fleet.snapshot()
    decision = await _decide(scheduler, fleet, request, owner)
    if not decision:
        async with scheduler.database.begin() as connection:
            await scheduler.live.read_room(connection)
        fleet = scheduler.live.fleet.snapshot()
        decision = await _decide(scheduler, fleet, request, owner)
    help_ = await scheduler.workers.run(owner, remedies, decision) if helping and not decision else ()
    return HypotheticalDecision(decision, placement.record(decision, partial(explain.where, fleet)), help_)


async def _decide(scheduler: Scheduler, fleet: Fleet, request: Request, owner: str) -> Decision:
    """Decide at once, or in a process for it where that takes long."""
    if request.count <= _LARGE:
        quick = place(fleet, replace(request, budget=0))
        if not quick.cut_short:
            return quick
    return await scheduler.decide(owner, fleet, request)


async def new_members(
    connection: AsyncConnection,
    scheduler: Scheduler,
    group_id: str,
    resources: Resources,
    count: int,
    *,
    zone: str | None = None,
    partition: int | None = None,
    seed: int = 0,
) -> Request:
    """New servers in a group."""
    await scheduler.live.sync(connection)
    rules, present = await _group(connection, scheduler, group_id)
    members.check_partition(group_id, rules, partition)
    return Request(resources, count, rules, present, zone=zone, partition=partition, seed=seed)


async def same_again(connection: AsyncConnection, scheduler: Scheduler, server: Server, count: int) -> Request:
    """A request for servers like one that found no host."""
    await scheduler.live.sync(connection)
    rules, members = await _group(connection, scheduler, server.group_id)
    near, apart = await hinted_hosts(connection, scheduler.live, server.hints, server.project_id)
    return Request(
        resources=server.flavor.size,
        count=count,
        rules=rules,
        members=members,
        zone=server.zone,
        same_host=near,
        different_host=apart,
        partition=server.partition,
    )


async def moved(connection: AsyncConnection, scheduler: Scheduler, server: Server, target: str) -> Request:
    """A server moved to one host, under the rules of its group; those on the way count in both places."""
    await scheduler.live.sync(connection)
    rules, members = await _group(connection, scheduler, server.group_id)
    source = None if server.host_id is None else scheduler.live.index(server.host_id)
    size = server.flavor.size
    return Request(
        size,
        rules=rules,
        members=members,
        targets=scheduler.live.targets(target),
        moving=None if source is None else Move(source, size),
        partition=server.partition,
    )


async def resized(connection: AsyncConnection, scheduler: Scheduler, server: Server, resources: Resources) -> Request:
    """A server that needs other resources, where it is or elsewhere, as a resize asks for it."""
    wanted = await same_again(connection, scheduler, server, 1)
    source = None if server.host_id is None else scheduler.live.index(server.host_id)
    moving = None if source is None else Move(source, server.flavor.size, may_stay=True)
    return replace(wanted, resources=resources, moving=moving)


async def _group(
    connection: AsyncConnection, scheduler: Scheduler, group_id: str | None
) -> tuple[tuple[Rule, ...], Members]:
    if group_id is None:
        return (), Members()
    group = (await scheduler.groups.read(connection, [group_id]))[group_id]
    return group.rules, group.members
