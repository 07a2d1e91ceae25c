"""What others may do to an action: cancel it, suspend and resume it, let its nodes go, or wake it when it is time."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters.actions import queue, requests, steps
from roost.clusters.actions.work import CANCEL, CANCELLED, SUSPEND
from roost.clusters.errors import ActionImmutable, BadRequest, ResourceNotFound
from roost.store.tables.clusters import UNFINISHED, actions, clusters, unfinished

_HELD_BY_NOBODY = ("INIT", "READY", "WAITING", "WAITING_LIFECYCLE_COMPLETION", "SUSPENDED")


async def change_status(connection: AsyncConnection, row: sa.Row[object], status: str, *, force: bool) -> None:
    """Do what a request to change an action's status asks for."""
    if status == CANCELLED:
        await cancel(connection, row, force=force)
    elif status == "SUSPENDED":
        await _suspend(connection, row)
    elif status == "READY" and row.status == "SUSPENDED":
        await _resume(connection, row)
    else:
        raise BadRequest(f"Unknown status {status} for action {row.id}.")


async def cancel(connection: AsyncConnection, row: sa.Row[object], *, force: bool = False) -> None:
    """End an action: at once if no engine is at it or by force, else as soon as its engine has finished a batch."""
    if row.status not in UNFINISHED:
        raise ActionImmutable(row.id, row.status)
    if not force and row.status not in _HELD_BY_NOBODY:
        await connection.execute(actions.update().where(actions.c.id == row.id).values(control=CANCEL))
        return
    reason = f"{row.action} [{row.id[:8]}] cancelled."
    await end_now(connection, row, reason)
    await requests.follow(connection, row.lock)


async def end_now(connection: AsyncConnection, row: sa.Row[object], reason: str) -> None:
    """Cancel an action and its steps here and now; an engine that is at it may write no more."""
    mine = sa.or_(actions.c.id == row.id, actions.c.parent_id == row.id)
    ended = await connection.execute(
        actions.update()
        .where(mine, unfinished)
        .values(
            status=CANCELLED,
            status_reason=reason,
            attempt=actions.c.attempt + 1,
            end_time=sa.func.clock_timestamp(),
            owner=None,
            control=None,
            wake_at=None,
        )
        .returning(actions.c.target)
    )
    await steps.release_nodes(connection, list(ended.scalars()), reason)
    busy = clusters.c.status.in_(
        ("CREATING", "UPDATING", "RESIZING", "DELETING", "CHECKING", "RECOVERING", "OPERATING")
    )
    await connection.execute(
        clusters.update().where(clusters.c.id == row.target, busy).values(status="WARNING", status_reason=reason)
    )


async def _suspend(connection: AsyncConnection, row: sa.Row[object]) -> None:
    if row.status not in UNFINISHED:
        raise ActionImmutable(row.id, row.status)
    change = actions.update().where(actions.c.id == row.id)
    if row.status in ("RUNNING",):
        await connection.execute(change.values(control=SUSPEND))
    else:
        await connection.execute(change.values(status="SUSPENDED", status_reason="The action is suspended."))


async def _resume(connection: AsyncConnection, row: sa.Row[object]) -> None:
    reason = "The action is ready to be carried out."
    change = actions.update().where(actions.c.id == row.id).values(status="READY", status_reason=reason, control=None)
    await connection.execute(change)
    await queue.enqueue(connection, [row.id])


async def complete_lifecycle(connection: AsyncConnection, cluster_id: str, token: str) -> str:
    """Let the node of this cluster go whose deletion waits under this token; the id of that deletion."""
    query = sa.select(actions).where(actions.c.id == token, actions.c.cluster_id == cluster_id).with_for_update()
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise ResourceNotFound("action", token)
    if row.status != "WAITING_LIFECYCLE_COMPLETION":
        return token
    ready = actions.update().where(actions.c.id == token)
    if row.parent_id is None:
        plan = {key: value for key, value in (row.plan or {}).items() if key not in ("hooks", "not_before")}
        await connection.execute(ready.values(status="READY", plan=plan, wake_at=None))
        await queue.enqueue(connection, [token])
        return token
    await connection.execute(ready.values(status="READY"))
    others = sa.select(actions.c.id).where(
        actions.c.parent_id == row.parent_id, actions.c.status == "WAITING_LIFECYCLE_COMPLETION"
    )
    if await connection.scalar(others.limit(1)) is None:
        await queue.enqueue(connection, [row.parent_id])
    return token


async def wake(connection: AsyncConnection) -> None:
    """Queue the actions whose time has come."""
    query = actions.update().where(actions.c.wake_at <= sa.func.now()).values(wake_at=None).returning(actions.c.id)
    await queue.enqueue(connection, list((await connection.execute(query)).scalars()))


async def find_lost(connection: AsyncConnection, seconds: float) -> None:
    """Queue the actions that nobody would look at any more."""
    lost = list((await connection.execute(queue.LOST, {"seconds": seconds})).scalars())
    await queue.enqueue(connection, lost)
