"""How a repair or a drain is carried out: live migrations, step by step, within its budget.

Every step is a row, and an engine that takes a repair up goes on from what the rows say. A `Mover` moves the servers:
the embedded cloud starts a migration in the transaction that records it, a Nova is called after that. Each migration is
scheduled under the group's rules when it starts, so an outdated plan can fail, but never breaks a rule.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

import sqlalchemy as sa
from prometheus_client import Counter as Metric
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.moves import operations
from roost.compute.moves.relocation import NoValidHost
from roost.compute.scheduling import servers as servers_room
from roost.compute.scheduling.scheduler import Scheduler
from roost.compute.scheduling.servers import Actor
from roost.errors import NotFound, RoostError
from roost.placement.phrases import counted
from roost.store import rounds
from roost.store.database import Database, now
from roost.store.tables.answers import repair_moves, repairs
from roost.store.tables.compute import hosts
from roost.store.tables.servers import servers

logger = logging.getLogger(__name__)

MOVES = Metric("roost_repair_moves_total", "Moves of repairs that have ended, by how.", ["state"])

UNDER_WAY = repairs.c.status.in_(("running", "stopping"))


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair, or a drain, as its row has it."""

    id: str
    group_id: str | None
    """None for a drain."""
    scope: str | None
    """With the identifier, the place that is drained."""
    identifier: str | None
    status: str
    paused: bool
    reason: str | None
    fewest: bool
    repairs_all: bool
    max_moves: int | None
    max_parallel: int
    cooldown: int
    user_id: str
    project_id: str
    request_id: str
    created_at: datetime
    updated_at: datetime | None

    @property
    def noun(self) -> str:
        """What it is."""
        return "Drain" if self.group_id is None else "Repair"


@dataclass(frozen=True, slots=True)
class RepairMove:
    """One migration of a repair, as its row has it."""

    repair_id: str
    position: int
    server_id: str
    source_id: int
    target_id: int
    state: str
    reason: str | None
    request_id: str | None
    ended_at: datetime | None
    source: str
    """The names of the hosts."""
    target: str


@dataclass(frozen=True, slots=True)
class StepState:
    """How far a step has come."""

    state: str
    reason: str | None = None
    request_id: str | None = None
    """Under which a Nova moves the server; none before it is known to have been asked."""


DELETED = StepState("failed", "the server was deleted")
FAILED = StepState("failed", "the migration failed")
UNMADE = StepState("waiting", "the server is still being made")
STOPPED = "the repair was stopped"
LEFT = "the server has left the group or its host"


class Mover(Protocol):
    """What moves servers: the embedded cloud, or a Nova."""

    async def start(self, connection: AsyncConnection, server: servers_room.Server, target: str, actor: Actor) -> None:
        """Begin a move, in the transaction that writes it down as running. Raises `NoValidHost` where its destination
        does not take the server now, and another `RoostError` where it cannot be moved at all."""
        ...

    async def look_after(self, step: RepairMove, *, stopping: bool) -> StepState:
        """See how far a move that is written down as running has come. Raises `RoostError` where that is unknown."""
        ...


async def load(connection: AsyncConnection, *conditions: sa.ColumnElement[bool], lock: bool = False) -> list[Repair]:
    """The repairs that meet these conditions, the oldest first."""
    columns = (repairs.c[each.name] for each in fields(Repair))
    query = sa.select(*columns).where(*conditions).order_by(repairs.c.number)
    return [Repair(*row) for row in await connection.execute(query.with_for_update() if lock else query)]


async def load_moves(connection: AsyncConnection, *repair_ids: str) -> list[RepairMove]:
    """The moves of these repairs, in their order."""
    source, target = hosts.alias("source"), hosts.alias("target")
    own = (repair_moves.c[each.name] for each in fields(RepairMove) if each.name in repair_moves.c)
    query = (
        sa.select(*own, source.c.name.label("source"), target.c.name.label("target"))
        .join(source, source.c.id == repair_moves.c.source_id)
        .join(target, target.c.id == repair_moves.c.target_id)
        .where(repair_moves.c.repair_id.in_(repair_ids))
    )
    return [RepairMove(*row) for row in await connection.execute(query.order_by(repair_moves.c.position))]


async def advance_all(database: Database, mover: Mover) -> None:
    """Take every repair that is under way as far as it can go now. One that fails does not hold up the others."""
    async with database.begin() as connection:
        under_way = await load(connection, UNDER_WAY)
    await rounds.each(under_way, partial(_take_further, database, mover), "a repair (%s)")


async def _take_further(database: Database, mover: Mover, repair: Repair) -> None:
    # A Nova may take long to answer: a request to stop the repair does not wait for that.
    await _look_after(database, mover, repair)
    async with database.begin() as connection:
        for current in await load(connection, repairs.c.id == repair.id, UNDER_WAY, lock=True):
            await _advance(connection, mover, current)


async def _look_after(database: Database, mover: Mover, repair: Repair) -> None:
    """See how far the moves of a repair have come."""
    async with database.begin() as connection:
        steps = await load_moves(connection, repair.id)
    for step in steps:
        if step.state == "running":
            try:
                reached = await mover.look_after(step, stopping=repair.status == "stopping")
            except RoostError as error:
                reached = StepState("running", f"{error.message.rstrip('.')}; trying again.", step.request_id)
            async with database.begin() as connection:
                await _set(connection, step, reached)


async def _advance(connection: AsyncConnection, mover: Mover, repair: Repair) -> None:
    steps = await load_moves(connection, repair.id)
    running = sum(step.state == "running" for step in steps)
    if repair.status == "stopping":
        if not running:
            await _skip_waiting(connection, repair.id)
    elif not repair.paused:
        await _start_more(connection, mover, repair, steps, running)
    steps = await load_moves(connection, repair.id)
    if not any(step.state in ("waiting", "running") for step in steps):
        await _end(connection, repair, steps)


async def _start_more(
    connection: AsyncConnection, mover: Mover, repair: Repair, steps: Sequence[RepairMove], running: int
) -> None:
    """Start the next steps, in order, as far as the budget goes."""
    ended = [step.ended_at for step in steps if step.ended_at is not None and step.state in ("done", "failed")]
    if ended and await now(connection) < max(ended) + timedelta(seconds=repair.cooldown):
        return
    actor = Actor(repair.user_id, repair.project_id, repair.request_id, is_admin=True)
    unmade = False
    for step in steps:
        if step.state == "waiting" and running < repair.max_parallel:
            reached = await _start(connection, mover, repair, step, actor)
            if reached is None and (running or unmade):
                break  # An earlier move may make the room that this one needs.
            unmade = unmade or reached == UNMADE
            reached = reached or StepState("failed", "its destination no longer takes it")
            await _set(connection, step, reached)
            running += reached.state == "running"
            if repair.cooldown and running:
                break


async def _start(
    connection: AsyncConnection, mover: Mover, repair: Repair, step: RepairMove, actor: Actor
) -> StepState | None:
    """Begin a step, if it is still to be done; None if its destination does not take it now."""
    try:
        server = await servers_room.find(connection, step.server_id, lock=True)
    except NotFound:
        return StepState("skipped", "the server was deleted")
    if server.vm_state == "building":
        return UNMADE  # A Nova may not even have named its host.
    if repair.group_id not in (None, server.group_id) or server.host_id != step.source_id:
        return StepState("skipped", LEFT)
    try:
        async with connection.begin_nested():
            await mover.start(connection, server, step.target, actor)
    except NoValidHost:
        return None
    except RoostError as error:
        return StepState("failed", error.message)
    return StepState("running")


async def _set(connection: AsyncConnection, step: RepairMove, reached: StepState) -> None:
    """Record the progress of a step, unless another engine has recorded later progress."""
    if reached == StepState(step.state, step.reason, step.request_id):
        return
    ended = reached.state not in ("waiting", "running")
    change = repair_moves.update().where(
        repair_moves.c.repair_id == step.repair_id,
        repair_moves.c.position == step.position,
        repair_moves.c.state == step.state,
    )
    values = {**asdict(reached), "ended_at": sa.func.clock_timestamp() if ended else None}
    if (await connection.execute(change.values(values))).rowcount and ended:
        MOVES.labels(reached.state).inc()


async def _skip_waiting(connection: AsyncConnection, repair_id: str) -> None:
    waiting = repair_moves.update().where(repair_moves.c.repair_id == repair_id, repair_moves.c.state == "waiting")
    await connection.execute(waiting.values(state="skipped", reason=STOPPED))


async def _end(connection: AsyncConnection, repair: Repair, steps: Sequence[RepairMove]) -> None:
    counts = Counter(step.state for step in steps)
    wrong = next(((step.reason or "").rstrip(".") for step in steps if step.state == "failed"), None)
    moves = counted(len(steps), "move")
    if repair.status == "stopping":
        status, reason = "stopped", f"Stopped after {counts['done']} of {moves}."
    elif counts["failed"]:
        status, reason = "failed", f"{counts['failed']} of {moves} failed; the first: {wrong}."
    else:
        status, reason = "done", f"{counts['done']} of {moves} done."
    await connection.execute(repairs.update().where(repairs.c.id == repair.id).values(status=status, reason=reason))
    logger.info("repair ended", extra={"repair": repair.id, "status": status, "group": repair.group_id})


@dataclass(frozen=True, slots=True)
class EmbeddedMover:
    """The embedded cloud: a move begins with its row, and ends in the tables."""

    database: Database
    scheduler: Scheduler

    async def start(self, connection: AsyncConnection, server: servers_room.Server, target: str, actor: Actor) -> None:
        """Begin a move, under the rules of the group."""
        await operations.live_migrate(connection, self.scheduler, server, actor, target)

    async def look_after(self, step: RepairMove, *, stopping: bool) -> StepState:
        """See how far a move has come."""
        async with self.database.begin() as connection:
            query = sa.select(servers.c.host_id, servers.c.task_state).where(servers.c.id == step.server_id)
            server = (await connection.execute(query)).one_or_none()
        if server is None:
            return DELETED
        if server.task_state is not None:
            return StepState("running")
        return StepState("done") if server.host_id == step.target_id else FAILED
