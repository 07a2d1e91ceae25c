"""What others may do to an action: cancel it, suspend and resume it, or let its nodes go."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters.actions import steps
from roost.clusters.errors import ActionImmutable, BadRequest, ResourceNotFound
from roost.clusters.records import ActionRecord
from roost.clusters.states import ActionStatus, ClusterStatus, Signal
from roost.store.tables.clusters import UNFINISHED, actions, clusters, unfinished

_BUSY = (
    ClusterStatus.CREATING,
    ClusterStatus.UPDATING,
    ClusterStatus.RESIZING,
    ClusterStatus.DELETING,
    ClusterStatus.CHECKING,
    ClusterStatus.RECOVERING,
    ClusterStatus.OPERATING,
)


async def change_status(connection: AsyncConnection, row: ActionRecord, status: str, *, force: bool) -> None:
    """Do what a request to change an action's status asks for."""
    if status == ActionStatus.CANCELLED:
        await cancel(connection, row, force=force)
    elif status == ActionStatus.SUSPENDED:
        await _suspend(connection, row)
    elif status == ActionStatus.READY and row.status == ActionStatus.SUSPENDED:
        reason = "The action is ready to be carried out."
        change = actions.update().where(actions.c.id == row.id)
        await connection.execute(change.values(status=ActionStatus.READY, status_reason=reason, control=None))
    else:
        raise BadRequest(f"Unknown status {status} for action {row.id}.")


async def cancel(connection: AsyncConnection, row: ActionRecord, *, force: bool = False) -> None:
    """End an action: at once if no engine is working on it or by force, else as soon as its engine has finished a
    batch."""
    if row.status not in UNFINISHED:
        raise ActionImmutable(row.id, row.status)
    if row.status == ActionStatus.RUNNING and not force:
        await connection.execute(actions.update().where(actions.c.id == row.id).values(control=Signal.CANCEL))
    else:
        await end_now(connection, row, f"{row.action} [{row.id[:8]}] cancelled.")


async def end_now(connection: AsyncConnection, row: ActionRecord, reason: str) -> None:
    """Cancel an action and its steps at once; an engine that is working on it may not write any more. The engine stays
    the owner until it has noticed, and has cleared away what it made in vain."""
    mine = sa.or_(actions.c.id == row.id, actions.c.parent_id == row.id)
    ended = await connection.execute(
        actions.update()
        .where(mine, unfinished)
        .values(
            status=ActionStatus.CANCELLED,
            status_reason=reason,
            attempt=actions.c.attempt + 1,
            end_time=sa.func.clock_timestamp(),
            owner=sa.case((actions.c.status == ActionStatus.RUNNING, actions.c.owner)),
            control=None,
            wake_at=None,
        )
        .returning(actions.c.target)
    )
    await steps.release_nodes(connection, list(ended.scalars()), reason)
    change = clusters.update().where(clusters.c.id == row.target, clusters.c.status.in_(_BUSY))
    await connection.execute(change.values(status=ClusterStatus.WARNING, status_reason=reason))


async def _suspend(connection: AsyncConnection, row: ActionRecord) -> None:
    if row.status not in UNFINISHED:
        raise ActionImmutable(row.id, row.status)
    change = actions.update().where(actions.c.id == row.id)
    if row.status == ActionStatus.RUNNING:
        await connection.execute(change.values(control=Signal.SUSPEND))
    else:
        await connection.execute(change.values(status=ActionStatus.SUSPENDED, status_reason="The action is suspended."))


async def complete_lifecycle(connection: AsyncConnection, cluster_id: str, token: str) -> str:
    """Let the deletion of a node of this cluster that waits under this token go on; returns the id of that
    deletion."""
    query = sa.select(actions).where(actions.c.id == token, actions.c.cluster_id == cluster_id).with_for_update()
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise ResourceNotFound("action", token)
    waiting = ActionStatus.WAITING_LIFECYCLE_COMPLETION
    if row.status != waiting:
        return token
    ready = actions.update().where(actions.c.id == token).values(status=ActionStatus.READY)
    if row.parent_id is None:
        plan = {key: value for key, value in (row.plan or {}).items() if key not in ("hooks", "not_before")}
        await connection.execute(ready.values(plan=plan, wake_at=None))
        return token
    await connection.execute(ready)
    others = sa.select(actions.c.id).where(actions.c.parent_id == row.parent_id, actions.c.status == waiting)
    if await connection.scalar(others.limit(1)) is None:
        due = actions.update().where(actions.c.id == row.parent_id, actions.c.wake_at.is_not(None))
        await connection.execute(due.values(wake_at=sa.func.now()))
    return token
