"""What becomes of servers without a request: the engine finishes the steps that are due.

A step is written down by whoever starts it, in the transaction that starts it: `due_at` says when it ends and `step`
what is then true. Finishing is one transaction for all servers that are due; a crash before its commit leaves them due.
"""

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory import claims, topology
from roost.compute.inventory.claims import NOTHING, Claim, Usage, lost_race
from roost.compute.inventory.flavors import size_of
from roost.compute.inventory.live_fleet import announce_claims
from roost.store.database import Database, notify
from roost.store.tables.servers import claims as claims_table
from roost.store.tables.servers import instance_actions, migrations, servers

logger = logging.getLogger(__name__)

CHANNEL = "roost_servers"
FALLEN = "roost_servers_fallen"
"""Where the nodes are told, by id and separated by commas, whose servers are gone or no longer active."""
_AT_ONCE = 200
"""Ids in one message, which PostgreSQL limits to 8,000 bytes."""
_BATCH = 500
_LONGEST_WAIT = 1.0
_PAUSE = 0.03


async def wake(connection: AsyncConnection) -> None:
    """Tell the engines that a server has a step to finish, once this commits."""
    await notify(connection, (CHANNEL, ""))


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


async def run(database: Database) -> None:
    """Finish steps as they fall due, until cancelled."""
    woken = asyncio.Event()

    async def received(_: str) -> None:
        woken.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(database.listen(CHANNEL, received))
        while True:
            woken.clear()
            try:
                finished = await finish(database)
                if 0 < finished < _BATCH:
                    # While much is asked for, more has fallen due after a moment: all of it shares a transaction.
                    await asyncio.sleep(_PAUSE)
                wait = 0.0 if finished else await _until_next(database)
            except Exception as error:
                if not lost_race(error):
                    logger.exception("steps could not be finished, trying again")
                wait = 0.1
            if wait:
                with contextlib.suppress(TimeoutError):
                    # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the event.
                    async with asyncio.timeout(wait):
                        await woken.wait()


async def finish(database: Database) -> int:
    """Finish a batch of the steps that are due; how many there were."""
    async with database.begin() as connection:
        behaviour = await topology.simulation(connection)
        due = (
            sa.select(servers)
            .where(servers.c.due_at <= sa.func.clock_timestamp())
            .order_by(servers.c.due_at)
            .limit(_BATCH)
            .with_for_update(skip_locked=True)
        )
        rows = (await connection.execute(due)).all()
        if rows:
            await _apply(connection, rows, float(behaviour["failure_rate"]))
    return len(rows)


async def _until_next(database: Database) -> float:
    async with database.begin() as connection:
        next_due: datetime | None = await connection.scalar(sa.select(sa.func.min(servers.c.due_at)))
    if next_due is None:
        return _LONGEST_WAIT
    return min(max((next_due - datetime.now(UTC)).total_seconds(), 0.01), _LONGEST_WAIT)


async def _apply(connection: AsyncConnection, rows: Sequence[sa.Row[Any]], failure_rate: float) -> None:
    outcome = _Outcome()
    for row in rows:
        failed = row.step.get("undo") is not None and random.random() < failure_rate
        _finish_one(row, row.step["undo"] if failed else row.step, outcome, failed)
    outcome.released += await _all_claims(connection, outcome.deleted)
    await claims.lock_usage(connection, outcome.usage)
    changing = {server_id for server_id, _ in outcome.released}.union(outcome.deleted)
    groups = {row.group_id for row in rows if row.group_id is not None and row.id in changing}
    await claims.lock_groups(connection, groups)
    await claims.lock_hosts(
        connection, {host_id for _, host_id in outcome.released} | {claim.host_id for claim in outcome.resized}
    )
    freed = await claims.release(connection, outcome.released)
    for claim in outcome.resized:
        await claims.change(connection, claim)
        freed.add(claim.host_id)
    if outcome.changed:
        await connection.execute(_CHANGE, {"rows": json.dumps(outcome.changed)})
    if outcome.deleted:
        await connection.execute(servers.delete().where(servers.c.id.in_(outcome.deleted)))
    await claims.count_usage(connection, outcome.usage)
    await claims.touch_groups(connection, groups)
    await _close(connection, [row.id for row in rows], outcome)
    await announce_claims(connection, freed)
    await _announce_fallen(connection, rows, outcome)


async def _announce_fallen(connection: AsyncConnection, rows: Sequence[sa.Row[Any]], outcome: _Outcome) -> None:
    fallen = {change["id"] for change in outcome.changed if change["vm_state"] != "active"}.union(outcome.deleted)
    tokens = [row.client_token for row in rows if row.id in fallen and row.client_token]
    parts = [tokens[at : at + _AT_ONCE] for at in range(0, len(tokens), _AT_ONCE)]
    await notify(connection, *((FALLEN, ",".join(part)) for part in parts))


def _finish_one(row: sa.Row[Any], step: Mapping[str, Any], outcome: _Outcome, failed: bool) -> None:
    counted = Usage.of(row.flavor, row.step)
    if step.get("delete"):
        outcome.deleted.append(row.id)
        _count(outcome, row.project_id, NOTHING - counted)
        return
    if failed:
        outcome.failed.append(row.id)
    outcome.released += [(row.id, host_id) for host_id in step.get("release", ())]
    migration = row.step.get("migration")
    if migration is not None:
        outcome.migrated[migration] = "error" if failed else step.get("migration_status", "completed")
    flavor, next_step = step.get("flavor", row.flavor), step.get("then")
    _count(outcome, row.project_id, Usage.of(flavor, next_step) - counted)
    if step.get("shrink"):
        size = size_of(flavor)
        outcome.resized.append(Claim(row.id, row.host_id, size))
    message = step.get("fault")
    fault = {"code": 500, "created": datetime.now(UTC).isoformat(), "message": message} if message else None
    outcome.changed.append(
        {
            "id": row.id,
            "vm_state": step.get("vm_state", row.vm_state),
            "power_state": step.get("power_state", row.power_state),
            "host_id": step.get("host_id", row.host_id),
            "flavor": flavor,
            "fault": fault or (row.fault if step.get("vm_state", row.vm_state) == "error" else None),
            "launched": not failed and step.get("host_id", row.host_id) is not None and bool(step.get("launches")),
            "next_step": next_step,
        }
    )


def _count(outcome: _Outcome, project_id: str, change: Usage) -> None:
    if change != NOTHING:
        outcome.usage[project_id] = outcome.usage.get(project_id, NOTHING) + change


async def _all_claims(connection: AsyncConnection, server_ids: Sequence[str]) -> list[tuple[str, int]]:
    if not server_ids:
        return []
    query = sa.select(claims_table.c.server_id, claims_table.c.host_id).where(claims_table.c.server_id.in_(server_ids))
    return [(row.server_id, row.host_id) for row in await connection.execute(query)]


async def _close(connection: AsyncConnection, server_ids: Sequence[str], outcome: _Outcome) -> None:
    """End the instance actions that these steps belong to, and the migrations."""
    open_actions = instance_actions.update().where(
        instance_actions.c.server_id.in_(server_ids), instance_actions.c.finish_time.is_(None)
    )
    went_wrong = sa.case((instance_actions.c.server_id.in_(outcome.failed), "Error"))
    message = went_wrong if outcome.failed else instance_actions.c.message
    await connection.execute(open_actions.values(finish_time=sa.func.now(), message=message))
    for status in set(outcome.migrated.values()):
        ended = [migration for migration, its_status in outcome.migrated.items() if its_status == status]
        changed = migrations.update().where(migrations.c.id.in_(ended))
        await connection.execute(changed.values(status=status, updated_at=sa.func.now()))


# `next_step` is what a resized server keeps, so that it can be confirmed or reverted.
_CHANGE = sa.text("""
    UPDATE servers SET vm_state = r.vm_state, power_state = r.power_state, host_id = r.host_id, flavor = r.flavor,
        fault = r.fault, task_state = NULL, due_at = NULL, step = r.next_step, updated_at = now(),
        launched_at = CASE WHEN r.launched THEN now() ELSE servers.launched_at END
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(
        id uuid, vm_state text, power_state int, host_id int, flavor jsonb, fault jsonb, launched boolean,
        next_step jsonb)
    WHERE servers.id = r.id
""")
