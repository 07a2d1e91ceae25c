"""Decisions that nobody carries out: what would become of a request if it were made now."""

import asyncio
from dataclasses import dataclass, replace

from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import groups
from roost.compute.scheduling import records
from roost.compute.scheduling.request import hinted_hosts
from roost.compute.scheduling.scheduler import Scheduler
from roost.compute.scheduling.servers import Server
from roost.placement.decision import Decision, Move, Request
from roost.placement.fleet import Members, Resources
from roost.placement.record import Record
from roost.placement.remedy import Remedy, remedies
from roost.placement.rules import Rule
from roost.placement.scheduler import place


@dataclass(frozen=True, slots=True)
class HypotheticalDecision:
    """What a decision came to, as it would be stored."""

    decision: Decision
    record: Record

    async def help(self) -> tuple[Remedy, ...]:
        """The smallest changes, one at a time, that would turn a refusal into a placement."""
        return await asyncio.to_thread(remedies, self.decision)


async def decide(connection: AsyncConnection, scheduler: Scheduler, request: Request) -> HypotheticalDecision:
    """Decide on the fleet as it is now. Nobody is refused on stale news: the room is read again first."""
    await scheduler.live.sync(connection)
    decision = await _decide(scheduler, request)
    if not decision:
        await scheduler.live.read_room(connection)
        decision = await _decide(scheduler, request)
    return HypotheticalDecision(decision, records.record(decision, scheduler.live))


async def _decide(scheduler: Scheduler, request: Request) -> Decision:
    """Decide in a moment, or in a thread where only the exact search can tell."""
    quick = place(scheduler.live.fleet, replace(request, budget=0))
    return await asyncio.to_thread(place, scheduler.live.fleet.snapshot(), request) if quick.cut_short else quick


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
) -> HypotheticalDecision:
    """New servers in a group."""
    await scheduler.live.sync(connection)
    rules, members = await _group(connection, scheduler, group_id)
    groups.check_partition(group_id, rules, partition)
    request = Request(resources, count, rules, members, zone=zone, partition=partition, seed=seed)
    return await decide(connection, scheduler, request)


async def same_again(
    connection: AsyncConnection, scheduler: Scheduler, server: Server, count: int
) -> HypotheticalDecision:
    """A request for servers like one that found no host."""
    await scheduler.live.sync(connection)
    rules, members = await _group(connection, scheduler, server.group_id)
    near, apart = await hinted_hosts(connection, scheduler.live, server.hints, server.project_id)
    request = Request(
        resources=server.flavor.size,
        count=count,
        rules=rules,
        members=members,
        zone=server.zone,
        same_host=near,
        different_host=apart,
        partition=server.partition,
    )
    return await decide(connection, scheduler, request)


async def moved(connection: AsyncConnection, scheduler: Scheduler, server: Server, target: str) -> HypotheticalDecision:
    """A server moved to one host, under the rules of its group; those on the way count in both places."""
    await scheduler.live.sync(connection)
    rules, members = await _group(connection, scheduler, server.group_id)
    source = None if server.host_id is None else scheduler.live.index(server.host_id)
    size = server.flavor.size
    request = Request(
        size,
        rules=rules,
        members=members,
        targets=scheduler.live.targets(target),
        moving=None if source is None else Move(source, size),
        partition=server.partition,
    )
    return await decide(connection, scheduler, request)


async def _group(
    connection: AsyncConnection, scheduler: Scheduler, group_id: str | None
) -> tuple[tuple[Rule, ...], Members]:
    if group_id is None:
        return (), Members()
    group = (await scheduler.groups.read(connection, [group_id]))[group_id]
    return group.rules, group.members
