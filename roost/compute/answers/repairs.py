"""Repairs: the fewest live migrations that mend a group, planned, stored for the engine, and shown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers import explain, placed_servers
from roost.compute.groups import groups
from roost.compute.moves import repair_steps
from roost.compute.moves.repair_steps import UNDER_WAY, Repair, RepairMove
from roost.compute.scheduling.scheduler import Scheduler
from roost.compute.scheduling.servers import Actor
from roost.errors import Conflict, NotFound
from roost.placement.fleet import Fleet
from roost.placement.record import HostPlace
from roost.placement.repair import RepairMember, RepairPlan, repair
from roost.placement.rules import HOST
from roost.store import rounds
from roost.store.database import Database
from roost.store.tables.answers import continuous_repairs, repair_moves, repairs
from roost.store.tables.compute import hosts
from roost.store.tables.servers import servers


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may be moved: in all (None: no limit), at once, and after how many seconds of rest."""

    max_moves: int | None = None
    max_parallel: int = 1
    cooldown: int = 0


class PlannedMove(TypedDict):
    """One migration, with where it leads from and to; plans keep it like this."""

    server_id: str
    source: HostPlace
    target: HostPlace


@dataclass(frozen=True, slots=True)
class ProposedRepair:
    """The moves that mend a group."""

    moves: tuple[PlannedMove, ...]
    fewest: bool
    repairs_all: bool


async def plan(scheduler: Scheduler, group_id: str, budget: Budget, owner: str) -> ProposedRepair:
    """The fewest moves that mend a group, in an order in which each is allowed; no more than the budget has. `owner` is
    the project that asks. No connection is held while the moves are searched for."""
    live = scheduler.live
    async with scheduler.database.begin() as connection:
        await live.sync(connection)
        rules = (await groups.rules_of(connection, [group_id]))[group_id]
        inside = await placed_servers.load(connection, live, servers.c.group_id == group_id)
        together = any(rule.together and rule.scope == HOST for rule in rules)
        held = await _held_by_nova(connection, group_id) if scheduler.settings.in_front_of_nova and together else set()
    members = [
        RepairMember(each.id, each.host, each.resources, group_id, each.partition, each.zone, each.id in held)
        for each in inside
    ]
    # Hosts may come and go while the moves are searched for, but not in the snapshot.
    fleet = live.fleet.snapshot()
    found: RepairPlan = await scheduler.workers.run(owner, repair, fleet, {group_id: rules}, members)
    wanted = found.moves[: budget.max_moves]
    scopes = [rule.scope for rule in rules]
    moves = tuple(planned_move(fleet, move.server, move.source, move.target, scopes) for move in wanted)
    whole = not found.unrepaired and len(wanted) == len(found.moves)
    return ProposedRepair(moves, found.fewest, whole)


def planned_move(fleet: Fleet, server_id: str, source: int, target: int, scopes: Sequence[str]) -> PlannedMove:
    """A move between two hosts, with their aggregates in these scopes."""
    places = (explain.where(fleet, host, scopes) for host in (source, target))
    return PlannedMove(server_id=server_id, source=next(places), target=next(places))


async def _held_by_nova(connection: AsyncConnection, group_id: str) -> set[str]:
    """The members that are also in Nova's own affinity group: Nova's filter keeps them on the hosts where some of them
    are. While there are several such hosts, members may move between them."""
    own = servers.c.hints["group"].astext == group_id
    query = sa.select(servers.c.id, servers.c.host_id).where(servers.c.group_id == group_id, own)
    rows = (await connection.execute(query)).all()
    return {row.id for row in rows} if len({row.host_id for row in rows}) == 1 else set()


async def begin(
    connection: AsyncConnection,
    group_id: str | None,
    moves: Sequence[PlannedMove],
    budget: Budget,
    actor: Actor,
    *,
    fewest: bool = False,
    repairs_all: bool = True,
    place: tuple[str, str] | None = None,
) -> str:
    """Write a repair down for the engine to carry out; its id. Raises `Conflict` while another one is under way.
    Without a group it is a drain of this `place`, a scope and an identifier."""
    scope, identifier = place or (None, None)
    row = {
        "group_id": group_id,
        "scope": scope,
        "identifier": identifier,
        "status": "running" if moves else "done",
        "reason": None if moves else "There was nothing to move.",
        "fewest": fewest,
        "repairs_all": repairs_all,
        **asdict(budget),
        "user_id": actor.user_id,
        "project_id": actor.project_id,
        "request_id": actor.request_id,
    }
    try:
        async with connection.begin_nested():
            repair_id = str(await connection.scalar(repairs.insert().values(row).returning(repairs.c.id)))
    except IntegrityError:
        raise Conflict(f"Server group {group_id} is being repaired already; stop that repair, or wait.") from None
    ids = await _host_ids(connection, moves)
    rows = [
        {
            "repair_id": repair_id,
            "position": position,
            "server_id": move["server_id"],
            "source_id": ids[move["source"]["host"]],
            "target_id": ids[move["target"]["host"]],
        }
        for position, move in enumerate(moves)
    ]
    if rows:
        await connection.execute(repair_moves.insert(), rows)
    return repair_id


async def begin_planned(
    connection: AsyncConnection, group_id: str, planned: ProposedRepair, budget: Budget, actor: Actor
) -> str:
    """Write down the repair that was planned; its id."""
    fewest, whole = planned.fewest, planned.repairs_all
    return await begin(connection, group_id, planned.moves, budget, actor, fewest=fewest, repairs_all=whole)


async def _host_ids(connection: AsyncConnection, moves: Sequence[PlannedMove]) -> dict[str, int]:
    names = {place["host"] for move in moves for place in (move["source"], move["target"])}
    query = sa.select(hosts.c.name, hosts.c.id).where(hosts.c.name.in_(names))
    return {row.name: row.id for row in await connection.execute(query)}


@dataclass(frozen=True, slots=True)
class StoredRepair:
    """A repair with its moves."""

    repair: Repair
    moves: tuple[RepairMove, ...]


async def index(connection: AsyncConnection, group_id: str) -> list[StoredRepair]:
    """The latest repairs of a group, the newest first."""
    return await latest(connection, repairs.c.group_id == group_id)


async def latest(connection: AsyncConnection, *conditions: sa.ColumnElement[bool]) -> list[StoredRepair]:
    """The latest repairs and drains that meet these conditions, the newest first."""
    newest = sa.select(repairs.c.id).where(*conditions).order_by(repairs.c.number.desc()).limit(100)
    found = await repair_steps.load(connection, repairs.c.id.in_(newest))
    moves: dict[str, list[RepairMove]] = {each.id: [] for each in found}
    for move in await repair_steps.load_moves(connection, *moves):
        moves[move.repair_id].append(move)
    return [StoredRepair(each, tuple(moves[each.id])) for each in reversed(found)]


async def find(connection: AsyncConnection, group_id: str, repair_id: str) -> StoredRepair:
    """One repair of a group."""
    found = await latest(connection, repairs.c.group_id == group_id, sa.cast(repairs.c.id, sa.Text) == repair_id)
    if not found:
        raise NotFound(f"Repair {repair_id} could not be found.")
    return found[0]


async def stop(connection: AsyncConnection, repair: Repair) -> None:
    """Start no further move; those under way end."""
    await _change(connection, repair, status="stopping")


async def pause(connection: AsyncConnection, repair: Repair, paused: bool) -> None:
    """Pause a repair, or let it go on; moves under way end."""
    await _change(connection, repair, paused=paused)


async def _change(connection: AsyncConnection, repair: Repair, **values: str | bool) -> None:
    change = repairs.update().where(repairs.c.id == repair.id, UNDER_WAY)
    if not (await connection.execute(change.values(values))).rowcount:
        raise Conflict(f"{repair.noun} {repair.id} has ended.")


# Continuous mode


async def keep_repaired(
    connection: AsyncConnection, group_id: str, continuous: bool, budget: Budget, actor: Actor
) -> None:
    """Turn continuous repairs of a group on or off."""
    if not continuous:
        await connection.execute(continuous_repairs.delete().where(continuous_repairs.c.group_id == group_id))
        return
    values = {**asdict(budget), "user_id": actor.user_id, "project_id": actor.project_id}
    query = insert(continuous_repairs).values(group_id=group_id, **values)
    await connection.execute(query.on_conflict_do_update(index_elements=["group_id"], set_=values))


async def mode(connection: AsyncConnection, group_id: str) -> Budget | None:
    """The budget for continuous repairs of a group; None if they are off."""
    query = sa.select(continuous_repairs).where(continuous_repairs.c.group_id == group_id)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else Budget(row.max_moves, row.max_parallel, row.cooldown)


class _Kept(NamedTuple):
    group_id: str
    max_moves: int | None
    max_parallel: int
    cooldown: int
    user_id: str
    project_id: str


async def mend_all(database: Database, scheduler: Scheduler) -> None:
    """Begin a repair for every group in continuous mode that needs one. A group that fails does not hold up others."""
    async with database.begin() as connection:
        query = sa.select(*(continuous_repairs.c[name] for name in _Kept._fields))
        kept = [_Kept(*row) for row in await connection.execute(query)]
    await rounds.each(kept, partial(_mend, database, scheduler), "continuous repair (%s)")


async def _mend(database: Database, scheduler: Scheduler, kept: _Kept) -> None:
    async with database.begin() as connection:
        if await repair_steps.load(connection, repairs.c.group_id == kept.group_id, UNDER_WAY):
            return
    budget = Budget(kept.max_moves, kept.max_parallel, kept.cooldown)
    planned = await plan(scheduler, kept.group_id, budget, kept.project_id)
    if planned.moves:
        actor = Actor(kept.user_id, kept.project_id, "continuous-repair", is_admin=True)
        async with database.begin() as connection:
            await begin_planned(connection, kept.group_id, planned, budget, actor)
