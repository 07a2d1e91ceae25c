"""Drains: move all servers of some hosts elsewhere, stored for the engine as a repair without a group."""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers import plans, repairs
from roost.compute.answers.plans import Displace
from roost.compute.answers.repairs import Budget, StoredRepair
from roost.compute.inventory import hosts
from roost.compute.moves.repair_steps import UNDER_WAY
from roost.compute.scheduling.scheduler import Scheduler
from roost.compute.scheduling.servers import Actor
from roost.errors import Conflict, NotFound
from roost.store.locks import AdvisoryLock, hold
from roost.store.tables.answers import repairs as table

_DRAINS = table.c.group_id.is_(None)


async def hosts_of(scheduler: Scheduler, place: Displace) -> dict[int, str]:
    """The hosts of a place, by id with their names."""
    live = scheduler.live
    async with scheduler.database.begin() as connection:
        await live.sync(connection)
        inside = await plans.hosts_inside(connection, scheduler, "", place)
    return {live.host(index).id: live.host(index).name for index in inside}


async def begin(
    scheduler: Scheduler, place: Displace, leaving: Mapping[int, str], reason: str, budget: Budget, actor: Actor
) -> str:
    """Disable these hosts, and write down where their servers go; the id of the drain. Raises `Conflict` while the
    place is being drained already. Servers that find no other place stay."""
    async with scheduler.database.begin() as connection:
        await _check(connection, place)
        await hosts.disable(connection, list(leaving), reason)
    found = await plans.displace_all(scheduler, None, actor.project_id, place)
    moves = [move for each in found for move in each.outcome.moves]
    whole = not any(each.outcome.stranded for each in found)
    async with scheduler.database.begin() as connection:
        # Of two drains that begin at the same time, the second waits here and then finds the first.
        await hold(connection, AdvisoryLock.DRAINS)
        await _check(connection, place)
        named = place.scope, place.identifier
        return await repairs.begin(connection, None, moves, budget, actor, repairs_all=whole, place=named)


async def _check(connection: AsyncConnection, place: Displace) -> None:
    if await index(connection, place.scope, place.identifier, UNDER_WAY):
        raise Conflict(f"{place.scope} {place.identifier} is being drained already; stop that drain, or wait.")


async def index(
    connection: AsyncConnection, scope: str | None, identifier: str | None, *conditions: sa.ColumnElement[bool]
) -> list[StoredRepair]:
    """The latest drains, the newest first; of this place, if one is given."""
    given = {"scope": scope, "identifier": identifier}
    of_place = [table.c[name] == value for name, value in given.items() if value is not None]
    return await repairs.latest(connection, _DRAINS, *of_place, *conditions)


async def find(connection: AsyncConnection, drain_id: str) -> StoredRepair:
    """One drain."""
    found = await repairs.latest(connection, _DRAINS, sa.cast(table.c.id, sa.Text) == drain_id)
    if not found:
        raise NotFound(f"Drain {drain_id} could not be found.")
    return found[0]
