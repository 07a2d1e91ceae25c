"""Repairs: the fewest live migrations that mend a group, carried out by the engine within a budget.

Every step of a repair is a row, and whoever takes a repair up goes on from what the rows say. Who moves the servers is
a `Mover`: the embedded cloud starts a migration in the transaction that writes it down, a Nova is asked after that.
Each migration is scheduled under the group's rules when it starts, so that a plan which time has overtaken can fail,
but never break a rule.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Protocol

import sqlalchemy as sa
from prometheus_client import Counter as Metric
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers import explain, placed_servers
from roost.compute.groups import groups
from roost.compute.moves import operations
from roost.compute.moves.relocation import NoValidHost
from roost.compute.scheduling import servers as servers_room
from roost.compute.scheduling.scheduler import Scheduler
from roost.compute.scheduling.servers import Actor
from roost.errors import Conflict, NotFound, RoostError
from roost.placement.repair import RepairMember, RepairPlan, repair
from roost.store.database import Database, now, patient
from roost.store.tables.answers import continuous_repairs, repair_moves, repairs
from roost.store.tables.compute import hosts
from roost.store.tables.servers import servers

logger = logging.getLogger(__name__)

MOVES = Metric("roost_repair_moves_total", "Moves of repairs that have ended, by how.", ["state"])

_POLL_SECONDS = 0.5
_UNDER_WAY = repairs.c.status.in_(("running", "stopping"))
# Held while repairs are carried out: who finds it held has nothing to do.
_TAKE_TURN = sa.text("SELECT pg_try_advisory_xact_lock(7266016)")


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may be moved: in all (None: whatever it takes), at once, and after how many seconds of rest."""

    max_moves: int | None = None
    max_parallel: int = 1
    cooldown: int = 0


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One migration, between hosts by name."""

    server_id: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class ProposedRepair:
    """The moves that mend a group, with where each leads from and to."""

    steps: tuple[RepairStep, ...]
    moves: tuple[dict[str, Any], ...]
    fewest: bool
    repairs_all: bool


@dataclass(frozen=True, slots=True)
class StepState:
    """How far a step has come, as its row says it."""

    state: str
    reason: str | None = None
    request_id: str | None = None
    """Under which a Nova moves the server; none before it is known to have been asked."""


DELETED = StepState("failed", "the server was deleted")
FAILED = StepState("failed", "the migration failed")
STOPPED = "the repair was stopped"
LEFT = "the server has left the group or its host"


class Mover(Protocol):
    """Who moves servers: the embedded cloud, or a Nova."""

    async def start(self, connection: AsyncConnection, server: servers_room.Server, target: str, actor: Actor) -> None:
        """Begin a move, in the transaction that writes it down as running. Raises `NoValidHost` where its destination
        does not take the server now, and another `RoostError` where it cannot be moved at all."""
        ...

    async def look_after(self, step: sa.Row[Any], *, stopping: bool) -> StepState:
        """See how far a move that is written down as running has come. Raises `RoostError` where nobody can say."""
        ...


async def plan(scheduler: Scheduler, group_id: str, budget: Budget, owner: str) -> ProposedRepair:
    """The fewest moves that mend a group, in an order in which each is allowed; no more than the budget has. `owner` is
    the project that asks. No connection is held while the moves are searched for."""
    live = scheduler.live
    async with scheduler.database.begin() as connection:
        await live.sync(connection)
        rules = (await groups.rules_of(connection, [group_id]))[group_id]
        inside = await placed_servers.load(connection, live, servers.c.group_id == group_id)
    members = [RepairMember(each.id, each.host, each.resources, group_id, each.partition) for each in inside]
    # Hosts may come and go while the moves are searched for, but not in the snapshot.
    fleet = live.fleet.snapshot()
    found: RepairPlan = await scheduler.workers.run(owner, repair, fleet, {group_id: rules}, members)
    wanted = found.moves[: budget.max_moves]
    scopes = [rule.scope for rule in rules]
    told = tuple(
        {
            "server_id": move.server,
            "source": explain.where(fleet, move.source, scopes),
            "target": explain.where(fleet, move.target, scopes),
        }
        for move in wanted
    )
    steps = tuple(RepairStep(move.server, fleet.name(move.source), fleet.name(move.target)) for move in wanted)
    whole = not found.unrepaired and len(wanted) == len(found.moves)
    return ProposedRepair(steps, told, found.fewest, whole)


async def begin(
    connection: AsyncConnection,
    group_id: str,
    steps: Sequence[RepairStep],
    budget: Budget,
    actor: Actor,
    *,
    fewest: bool = False,
    repairs_all: bool = True,
) -> str:
    """Write a repair down for the engine to carry out; its id. Raises `Conflict` while another one is under way."""
    row = {
        "group_id": group_id,
        "status": "running" if steps else "done",
        "reason": None if steps else "There was nothing to move.",
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
    ids = await _host_ids(connection, steps)
    rows = [
        {
            "repair_id": repair_id,
            "position": position,
            "server_id": step.server_id,
            "source_id": ids[step.source],
            "target_id": ids[step.target],
        }
        for position, step in enumerate(steps)
    ]
    if rows:
        await connection.execute(repair_moves.insert(), rows)
    return repair_id


async def _host_ids(connection: AsyncConnection, steps: Sequence[RepairStep]) -> dict[str, int]:
    names = {name for step in steps for name in (step.source, step.target)}
    query = sa.select(hosts.c.name, hosts.c.id).where(hosts.c.name.in_(names))
    return {row.name: row.id for row in await connection.execute(query)}


@dataclass(frozen=True, slots=True)
class StoredRepair:
    """A repair with its steps."""

    row: sa.Row[Any]
    steps: tuple[sa.Row[Any], ...]


async def index(connection: AsyncConnection, group_id: str) -> list[StoredRepair]:
    """The repairs of a group, the newest first."""
    query = sa.select(repairs).where(repairs.c.group_id == group_id).order_by(repairs.c.number.desc()).limit(100)
    rows = (await connection.execute(query)).all()
    steps: dict[str, list[sa.Row[Any]]] = {row.id: [] for row in rows}
    for step in await _steps(connection, *steps):
        steps[step.repair_id].append(step)
    return [StoredRepair(row, tuple(steps[row.id])) for row in rows]


async def find(connection: AsyncConnection, group_id: str, repair_id: str) -> StoredRepair:
    """One repair of a group."""
    query = sa.select(repairs).where(repairs.c.group_id == group_id, sa.cast(repairs.c.id, sa.Text) == repair_id)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise NotFound(f"Repair {repair_id} could not be found.")
    return StoredRepair(row, await _steps(connection, row.id))


async def _steps(connection: AsyncConnection, *repair_ids: str) -> tuple[sa.Row[Any], ...]:
    source, target = hosts.alias("source"), hosts.alias("target")
    query = (
        sa.select(repair_moves, source.c.name.label("source"), target.c.name.label("target"))
        .join(source, source.c.id == repair_moves.c.source_id)
        .join(target, target.c.id == repair_moves.c.target_id)
        .where(repair_moves.c.repair_id.in_(repair_ids))
    )
    return tuple((await connection.execute(query.order_by(repair_moves.c.position))).all())


async def stop(connection: AsyncConnection, group_id: str, repair_id: str) -> None:
    """Start no further move; those under way end."""
    told = await find(connection, group_id, repair_id)
    if told.row.status not in ("running", "stopping"):
        raise Conflict(f"Repair {repair_id} has ended.")
    change = repairs.update().where(repairs.c.id == repair_id, _UNDER_WAY)
    await connection.execute(change.values(status="stopping"))


# Continuous mode


async def keep_repaired(
    connection: AsyncConnection, group_id: str, continuous: bool, budget: Budget, actor: Actor
) -> None:
    """Mend a group whenever it is found broken, or no longer."""
    if not continuous:
        await connection.execute(continuous_repairs.delete().where(continuous_repairs.c.group_id == group_id))
        return
    values = {**asdict(budget), "user_id": actor.user_id, "project_id": actor.project_id}
    query = insert(continuous_repairs).values(group_id=group_id, **values)
    await connection.execute(query.on_conflict_do_update(index_elements=["group_id"], set_=values))


async def mode(connection: AsyncConnection, group_id: str) -> Budget | None:
    """Within which budget a group is kept repaired; None if it is not."""
    query = sa.select(continuous_repairs).where(continuous_repairs.c.group_id == group_id)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else Budget(row.max_moves, row.max_parallel, row.cooldown)


async def mend_all(database: Database, scheduler: Scheduler) -> int:
    """Begin a repair for every group in continuous mode that needs one; how many those were."""
    async with database.begin() as connection:
        rows = (await connection.execute(sa.select(continuous_repairs))).all()
    begun = 0
    for row in rows:
        async with database.begin() as connection:
            busy = sa.select(repairs.c.id).where(repairs.c.group_id == row.group_id, _UNDER_WAY)
            if await connection.scalar(busy) is not None:
                continue
        budget = Budget(row.max_moves, row.max_parallel, row.cooldown)
        planned = await plan(scheduler, row.group_id, budget, row.project_id)
        if planned.steps:
            actor = Actor(row.user_id, row.project_id, "continuous-repair", is_admin=True)
            kept = {"fewest": planned.fewest, "repairs_all": planned.repairs_all}
            async with database.begin() as connection:
                await begin(connection, row.group_id, planned.steps, budget, actor, **kept)
            begun += 1
    return begun


# The engine's part


async def run(database: Database, scheduler: Scheduler, mover: Mover, mend_seconds: float) -> None:
    """Carry repairs out, and mend groups in continuous mode, until cancelled."""
    next_mending = asyncio.get_running_loop().time()
    while True:
        try:
            await advance_all(database, mover)
            if mend_seconds and asyncio.get_running_loop().time() >= next_mending:
                next_mending = asyncio.get_running_loop().time() + mend_seconds
                await mend_all(database, scheduler)
        except Exception:
            logger.exception("repairs could not go on, trying again")
        await asyncio.sleep(_POLL_SECONDS)


async def advance_all(database: Database, mover: Mover) -> None:
    """Take every repair that is under way as far as it can go now; one engine does it at a time."""
    async with database.begin() as turn:
        await patient(turn)
        if not await turn.scalar(_TAKE_TURN):
            return
        query = sa.select(repairs).where(_UNDER_WAY).order_by(repairs.c.number)
        for row in (await turn.execute(query)).all():
            # A Nova may take long to say: nobody who wants to stop the repair waits for that.
            await _look_after(database, mover, row)
            async with database.begin() as connection:
                mine = sa.select(repairs).where(repairs.c.id == row.id, _UNDER_WAY).with_for_update()
                now_row = (await connection.execute(mine)).one_or_none()
                if now_row is not None:
                    await _advance(connection, mover, now_row)


async def _look_after(database: Database, mover: Mover, row: sa.Row[Any]) -> None:
    """See how far the moves of a repair have come."""
    async with database.begin() as connection:
        steps = await _steps(connection, row.id)
    for step in steps:
        if step.state == "running":
            try:
                standing = await mover.look_after(step, stopping=row.status == "stopping")
            except RoostError as error:
                standing = StepState("running", f"{error.message.rstrip('.')}; trying again.", step.request_id)
            async with database.begin() as connection:
                await _set(connection, step, standing)


async def _advance(connection: AsyncConnection, mover: Mover, row: sa.Row[Any]) -> None:
    steps = await _steps(connection, row.id)
    running = sum(step.state == "running" for step in steps)
    if row.status == "running":
        await _start_more(connection, mover, row, steps, running)
    elif not running:
        await _skip_waiting(connection, row.id)
    steps = await _steps(connection, row.id)
    if not any(step.state in ("waiting", "running") for step in steps):
        await _end(connection, row, steps)


async def _start_more(
    connection: AsyncConnection, mover: Mover, row: sa.Row[Any], steps: Sequence[sa.Row[Any]], running: int
) -> None:
    """Start the next steps, in order, as far as the budget goes."""
    ended = [step.ended_at for step in steps if step.ended_at is not None and step.state in ("done", "failed")]
    if ended and await now(connection) < max(ended) + timedelta(seconds=row.cooldown):
        return
    actor = Actor(row.user_id, row.project_id, row.request_id, is_admin=True)
    for step in steps:
        if step.state == "waiting" and running < row.max_parallel:
            standing = await _start(connection, mover, row, step, actor)
            if standing is None and running:
                break  # A move under way may make the room that this one needs.
            standing = standing or StepState("failed", "its destination no longer takes it")
            await _set(connection, step, standing)
            running += standing.state == "running"
            if row.cooldown and running:
                break


async def _start(
    connection: AsyncConnection, mover: Mover, row: sa.Row[Any], step: sa.Row[Any], actor: Actor
) -> StepState | None:
    """Begin a step, if it is still to be done; None if its destination does not take it now."""
    try:
        server = await servers_room.find(connection, step.server_id, lock=True)
    except NotFound:
        return StepState("skipped", "the server was deleted")
    if server.group_id != row.group_id or server.host_id != step.source_id:
        return StepState("skipped", LEFT)
    try:
        async with connection.begin_nested():
            await mover.start(connection, server, step.target, actor)
    except NoValidHost:
        return None
    except RoostError as error:
        return StepState("failed", error.message)
    return StepState("running")


async def _set(connection: AsyncConnection, step: sa.Row[Any], standing: StepState) -> None:
    """Write down how far a step has come, unless another engine, whose turn it was meanwhile, has seen it go on."""
    if standing == StepState(step.state, step.reason, step.request_id):
        return
    ended = standing.state != "running"
    change = repair_moves.update().where(
        repair_moves.c.repair_id == step.repair_id,
        repair_moves.c.position == step.position,
        repair_moves.c.state == step.state,
    )
    values = {**asdict(standing), "ended_at": sa.func.clock_timestamp() if ended else None}
    if (await connection.execute(change.values(values))).rowcount and ended:
        MOVES.labels(standing.state).inc()


async def _skip_waiting(connection: AsyncConnection, repair_id: str) -> None:
    waiting = repair_moves.update().where(repair_moves.c.repair_id == repair_id, repair_moves.c.state == "waiting")
    await connection.execute(waiting.values(state="skipped", reason=STOPPED))


async def _end(connection: AsyncConnection, row: sa.Row[Any], steps: Sequence[sa.Row[Any]]) -> None:
    counts = Counter(step.state for step in steps)
    wrong = next((step.reason.rstrip(".") for step in steps if step.state == "failed"), None)
    if row.status == "stopping":
        status, reason = "stopped", f"Stopped after {counts['done']} of {len(steps)} moves."
    elif counts["failed"]:
        status, reason = "failed", f"{counts['failed']} of {len(steps)} moves failed; the first: {wrong}."
    else:
        status, reason = "done", f"{counts['done']} of {len(steps)} moves done."
    await connection.execute(repairs.update().where(repairs.c.id == row.id).values(status=status, reason=reason))
    logger.info("repair ended", extra={"repair": row.id, "status": status, "group": row.group_id})


@dataclass(frozen=True, slots=True)
class EmbeddedMover:
    """The embedded cloud: a move begins with its row, and ends in the tables."""

    database: Database
    scheduler: Scheduler

    async def start(self, connection: AsyncConnection, server: servers_room.Server, target: str, actor: Actor) -> None:
        """Begin a move, under the rules of the group."""
        await operations.live_migrate(connection, self.scheduler, server, actor, target)

    async def look_after(self, step: sa.Row[Any], *, stopping: bool) -> StepState:
        """See how far a move has come."""
        async with self.database.begin() as connection:
            query = sa.select(servers.c.host_id, servers.c.task_state).where(servers.c.id == step.server_id)
            server = (await connection.execute(query)).one_or_none()
        if server is None:
            return DELETED
        if server.task_state is not None:
            return StepState("running")
        return StepState("done") if server.host_id == step.target_id else FAILED
