"""The queue on which actions wait for an engine: procrastinate, in the same database as the actions.

A job only says which action to look at. Which action holds a cluster, and in what order others follow, is read from
the table of actions: an action that waits (for a hook, between two batches) holds its cluster without a job.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import procrastinate
import sqlalchemy as sa
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.database import Database

logger = logging.getLogger(__name__)

_QUEUE = "actions"
_TASK = "roost.clusters.actions.carry_out"
# A notification that arrives while a worker fetches is lost to it: it looks again this soon.
_POLL_SECONDS = 0.25
_STOP_SECONDS = 10.0

_unopened = procrastinate.App(connector=procrastinate.PsycopgConnector())


async def enqueue(connection: AsyncConnection, action_ids: Iterable[str]) -> None:
    """Have an engine look at these actions, if and when this transaction commits."""
    raw = (await connection.get_raw_connection()).driver_connection
    for action_id in action_ids:
        # The lock: two jobs for one action never run at once.
        deferrer = _unopened.configure_task(_TASK, queue=_QUEUE, lock=action_id, connection=raw)
        await deferrer.defer_async(action_id=action_id)


async def work(
    database: Database,
    carry_out: Callable[[str], Awaitable[None]],
    *,
    concurrency: int,
    heartbeat: float,
    dead_after: float,
) -> None:
    """Carry out actions until cancelled; those of engines without a heartbeat are taken over."""
    while True:
        app = _app(database, carry_out)
        try:
            async with app.open_async(), asyncio.TaskGroup() as group:
                takeover = group.create_task(_take_over(app, heartbeat, dead_after))
                await app.run_worker_async(
                    queues=[_QUEUE],
                    concurrency=concurrency,
                    fetch_job_polling_interval=_POLL_SECONDS,
                    shutdown_graceful_timeout=_STOP_SECONDS,
                    install_signal_handlers=False,
                    delete_jobs=DeleteJobCondition.ALWAYS,
                    update_heartbeat_interval=heartbeat,
                    stalled_worker_timeout=dead_after,
                )
                takeover.cancel()
        except* (ConnectorException, OSError) as lost:
            logger.warning("lost the queue, trying again", extra={"error": str(lost.exceptions[0])})
        await asyncio.sleep(1)


def _app(database: Database, carry_out: Callable[[str], Awaitable[None]]) -> procrastinate.App:
    dsn = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    connector = procrastinate.PsycopgConnector(conninfo=dsn, min_size=1, max_size=4)
    app = procrastinate.App(connector=connector)

    @app.task(name=_TASK, queue=_QUEUE)
    async def carry_out_action(action_id: str) -> None:
        await carry_out(action_id)

    return app


async def _take_over(app: procrastinate.App, heartbeat: float, dead_after: float) -> None:
    while True:
        await asyncio.sleep(heartbeat)
        for job in await app.job_manager.get_stalled_jobs(queue=_QUEUE, seconds_since_heartbeat=dead_after):
            logger.warning("taking over from an engine that gives no sign of life", extra={"job": job.task_kwargs})
            try:
                await app.job_manager.retry_job(job)
            except ConnectorException:
                continue  # another engine was faster


LOST = sa.text(
    """
    SELECT id FROM actions AS action
    WHERE action.status IN ('READY', 'RUNNING') AND action.parent_id IS NULL
      AND coalesce(action.updated_at, action.created_at) < now() - make_interval(secs => :seconds)
      AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE lock = action.id AND status IN ('todo', 'doing'))
      AND NOT EXISTS (
        SELECT 1 FROM actions AS earlier
        WHERE earlier.lock = action.lock AND earlier.sequence < action.sequence AND earlier.parent_id IS NULL
          AND earlier.status IN ('INIT', 'READY', 'RUNNING', 'WAITING', 'WAITING_LIFECYCLE_COMPLETION', 'SUSPENDED')
      )
    """
)
"""Actions that nobody will look at: their job ended without them, as when an engine lost the database for a while."""
