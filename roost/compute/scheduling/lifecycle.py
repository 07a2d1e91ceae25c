"""What the engine does with servers: it finishes the steps that are due.

A step is recorded in the transaction that starts it: `due_at` says when it ends and `step`
what is then true. Finishing is one transaction for the servers of a project that are due, so that no project waits for
rows that another has locked; a crash before its commit leaves them due.
"""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import members
from roost.compute.inventory import claims, topology
from roost.compute.inventory.claims import NOTHING, Claim, Usage, lost_race
from roost.compute.inventory.flavors import ServerFlavor
from roost.compute.scheduling import steps
from roost.compute.scheduling.steps import STAY, Deletion, Fault, Transition
from roost.config import Settings
from roost.store import bulk, watch
from roost.store.database import Database
from roost.store.rounds import Rounds
from roost.store.tables.changes import watch_changes
from roost.store.tables.servers import claims as claims_table
from roost.store.tables.servers import instance_actions, migrations, servers

logger = logging.getLogger(__name__)

_BATCH = 100
"""Steps of a project that share a transaction, which holds their hosts while it lasts."""
_POLL_SECONDS = 0.05
_IDLE_SECONDS = 0.1
"""Between two looks while no step is pending."""


@dataclass(frozen=True, slots=True)
class DueServer:
    """A server whose step is due."""

    id: str
    project_id: str
    group_id: str | None
    host_id: int | None
    vm_state: str
    power_state: int
    fault: Fault | None
    client_token: str | None
    flavor: ServerFlavor
    step: Transition | Deletion


def _due(columns: sa.RowMapping) -> DueServer:
    """Read a server; one whose step cannot be read ends in error, and says why."""
    try:
        step = steps.read(columns["step"])
        if not isinstance(step, Transition | Deletion):
            raise ValueError(f"The step of a server has no end: {columns['step']!r}.")
    except ValueError as error:
        logger.error("the step of a server cannot be finished", extra={"server": columns["id"], "error": str(error)})
        step = Transition("error", fault=str(error))
    return DueServer(**{**columns, "flavor": ServerFlavor.from_json(columns["flavor"]), "step": step})


@dataclass(slots=True)
class _Outcome:
    """What finishing a batch of steps comes to."""

    changed: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    released: list[tuple[str, int]] = field(default_factory=list)
    resized: list[Claim] = field(default_factory=list)
    """Claims that end with another size."""
    migrated: dict[int, str] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    """By how much the projects' usage changes."""

    def finish(self, server: DueServer, failed: bool) -> None:
        """Add the end of one server's step."""
        step = server.step
        counted = Usage.of(server.flavor, step.flavor)
        if isinstance(step, Deletion):
            self.deleted.append(server.id)
            self._count(server.project_id, NOTHING - counted)
            return
        end = step
        if failed:
            assert step.undo is not None
            self.failed.append(server.id)
            end = step.undo
        if step.migration is not None:
            self.migrated[step.migration] = "error" if failed else end.migration_status
        self.released += [(server.id, host_id) for host_id in end.release]
        flavor = end.flavor or server.flavor
        self._count(server.project_id, Usage.of(flavor, None if end.then is None else end.then.flavor) - counted)
        if end.shrink and server.host_id is not None:
            self.resized.append(Claim(server.id, server.host_id, flavor.size))
        self.changed.append(_row(server, end, flavor))

    def _count(self, project_id: str, change: Usage) -> None:
        if change != NOTHING:
            self.usage[project_id] = self.usage.get(project_id, NOTHING) + change


def _row(server: DueServer, end: Transition, flavor: ServerFlavor) -> dict[str, Any]:
    vm_state = server.vm_state if end.vm_state is None else end.vm_state
    host_id = server.host_id if end.host_id is STAY else end.host_id
    fault = server.fault if vm_state == "error" else None
    if end.fault is not None:
        fault = {"code": 500, "created": datetime.now(UTC).isoformat(), "message": end.fault}
    return {
        "id": server.id,
        "vm_state": vm_state,
        "power_state": server.power_state if end.power_state is None else end.power_state,
        "host_id": host_id,
        "flavor": flavor.to_json(),
        "fault": fault,
        "step": end.then and end.then.to_json(),
        "launched": end.launches and host_id is not None,
    }


async def run(database: Database, rounds: Rounds, settings: Settings | None = None) -> None:
    """Finish steps as they fall due, until cancelled."""
    # What falls due between two looks shares a transaction.
    await rounds.every(_POLL_SECONDS, partial(_finish_due, database, settings))


async def _finish_due(database: Database, settings: Settings | None) -> float | None:
    """Finish what is due; 0 to look again at once."""
    async with database.autocommit() as connection:
        due = await connection.scalar(_IS_DUE)
    if due:
        return 0.0 if await finish(database, settings) >= _BATCH else None
    return _IDLE_SECONDS if due is None else None


async def finish(database: Database, settings: Settings | None = None) -> int:
    """Finish a batch of the steps that are due of each project, beginning with those that have the fewest; how many
    there were. With settings that ask for notifications, members of groups that are deleted are announced."""
    async with database.autocommit() as connection:
        project_ids = (await connection.scalars(_WHOSE)).all()
    finished = 0
    for project_id in project_ids:
        try:
            finished += await _finish_batch(database, settings, project_id)
        except Exception as error:
            if not lost_race(error):
                raise
    return finished


async def _finish_batch(database: Database, settings: Settings | None, project_id: str) -> int:
    async with database.begin() as connection:
        rows = (await connection.execute(_DUE, {"project": project_id})).all()
        if rows:
            failure_rate = (await topology.simulation(connection))["failure_rate"]
            await _apply(connection, settings, [_due(row._mapping) for row in rows], float(failure_rate))
    return len(rows)


async def _apply(
    connection: AsyncConnection, settings: Settings | None, due: Sequence[DueServer], failure_rate: float
) -> None:
    """Write what has become of these servers."""
    outcome = _Outcome()
    for server in due:
        may_fail = isinstance(server.step, Transition) and server.step.undo is not None
        outcome.finish(server, may_fail and random.random() < failure_rate)
    outcome.released += await _all_claims(connection, outcome.deleted)
    changing = {server_id for server_id, _ in outcome.released}.union(outcome.deleted)
    touched = {server.group_id for server in due if server.group_id is not None and server.id in changing}
    if outcome.changed:
        await connection.execute(_CHANGE, {"rows": outcome.changed})
        await _close(connection, outcome)
    await _announce_fallen(connection, due, outcome)
    freed = await claims.give_up(connection, outcome.released) + await claims.resize(connection, outcome.resized)
    if outcome.deleted:
        await connection.execute(servers.delete().where(servers.c.id.in_(outcome.deleted)))
    if settings is not None:
        left = [(each.group_id, each.id) for each in due if each.id in outcome.deleted and each.group_id is not None]
        await members.announce_removed(connection, settings, left)
    # From here on, new servers that want these groups or hosts wait for this transaction: what takes long is done.
    await claims.give_back(connection, freed, groups=touched, usage=outcome.usage)


async def _announce_fallen(connection: AsyncConnection, due: Sequence[DueServer], outcome: _Outcome) -> None:
    fallen = {change["id"] for change in outcome.changed if change["vm_state"] != "active"}.union(outcome.deleted)
    tokens = [server.client_token for server in due if server.id in fallen and server.client_token]
    if tokens:
        row = {"kind": watch.FALLEN, "project_id": "", "ids": ",".join(tokens)}
        await connection.execute(watch_changes.insert().values(row))


async def _all_claims(connection: AsyncConnection, server_ids: Sequence[str]) -> list[tuple[str, int]]:
    if not server_ids:
        return []
    query = sa.select(claims_table.c.server_id, claims_table.c.host_id).where(claims_table.c.server_id.in_(server_ids))
    return [(row.server_id, row.host_id) for row in await connection.execute(query)]


async def _close(connection: AsyncConnection, outcome: _Outcome) -> None:
    """End the instance actions and migrations that these steps belong to; those of deleted servers go with them."""
    open_actions = instance_actions.update().where(
        instance_actions.c.server_id.in_([change["id"] for change in outcome.changed]),
        instance_actions.c.finish_time.is_(None),
    )
    went_wrong = sa.case((instance_actions.c.server_id.in_(outcome.failed), "Error"))
    message = went_wrong if outcome.failed else instance_actions.c.message
    await connection.execute(open_actions.values(finish_time=sa.func.now(), message=message))
    for status in set(outcome.migrated.values()):
        ended = [migration for migration, its_status in outcome.migrated.items() if its_status == status]
        changed = migrations.update().where(migrations.c.id.in_(ended))
        await connection.execute(changed.values(status=status, updated_at=sa.func.now()))


_WHOSE = (
    sa.select(servers.c.project_id)
    .where(servers.c.due_at <= sa.func.statement_timestamp())
    .group_by(servers.c.project_id)
    .order_by(sa.func.count())
)
_DUE = (
    sa.select(*(servers.c[each.name] for each in fields(DueServer)))
    .where(servers.c.due_at <= sa.func.statement_timestamp(), servers.c.project_id == sa.bindparam("project"))
    .order_by(servers.c.due_at)
    .limit(_BATCH)
    .with_for_update(skip_locked=True)
)

_IS_DUE = sa.select(sa.func.min(servers.c.due_at) <= sa.func.statement_timestamp()).where(servers.c.due_at.is_not(None))
"""Null if no server will be due."""

_CHANGED = (
    servers.c.vm_state,
    servers.c.power_state,
    servers.c.host_id,
    servers.c.flavor,
    servers.c.fault,
    servers.c.step,
)
_GIVEN = bulk.given(servers.c.id, *_CHANGED, launched=sa.Boolean)
_CHANGE = (
    servers.update()
    .where(servers.c.id == _GIVEN.c.id)
    .values({column.name: _GIVEN.c[column.name] for column in _CHANGED})
    .values(
        task_state=None,
        due_at=None,
        updated_at=sa.func.now(),
        launched_at=sa.case((_GIVEN.c.launched, sa.func.now()), else_=servers.c.launched_at),
    )
)
