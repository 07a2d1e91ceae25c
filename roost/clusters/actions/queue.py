"""The queue on which actions wait for an engine: procrastinate, in the same database as the actions.

A job only says which action to look at. Which action holds a cluster, and in what order others follow, is read from
the table of actions: an action that waits (for a hook, between two batches) holds its cluster without a job.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import procrastinate
import sqlalchemy as sa
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.database import CONNECTING, Database

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
        try:
            await deferrer.defer_async(action_id=action_id)
        except ConnectorException as error:
            # It fails as everything else in this transaction would.
            raise sa.exc.OperationalError("defer a job", None, error.__cause__ or error) from error


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
        in_hand = _InHand()
        app = _app(database, carry_out, in_hand)
        try:
            async with app.open_async(), asyncio.TaskGroup() as group:
                takeover = group.create_task(_take_over(app, in_hand, heartbeat, dead_after))
                try:
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
                finally:
                    in_hand.over = True
                    takeover.cancel()
        except* (ConnectorException, OSError) as lost:
            logger.warning("lost the queue, trying again", extra={"error": str(lost.exceptions[0])})
        await asyncio.sleep(1)


@dataclass(slots=True)
class _InHand:
    """The jobs that this process is at. The table may say of more: the end of a job that the database did not hear of
    leaves it to be done for ever, by a worker that lives and knows nothing of it."""

    worker: int | None = None
    over: bool = False
    """The worker has ended. A cancellation alone may be lost on the way, in the pool of connections."""
    jobs: set[int | None] = field(default_factory=set)
    missing: set[int | None] = field(default_factory=set)
    """Those of our worker that were not in hand at the last look, when they might just have begun or ended."""

    async def dropped(self, app: procrastinate.App) -> list[procrastinate.jobs.Job]:
        """The jobs that this worker is said to be at, and twice in a row was not."""
        if self.worker is None:
            return []
        said = await app.job_manager.list_jobs_async(queue=_QUEUE, status="doing", worker_id=self.worker)
        absent = [job for job in said if job.id not in self.jobs]
        dropped = [job for job in absent if job.id in self.missing]
        self.missing = {job.id for job in absent}
        return dropped


def _app(database: Database, carry_out: Callable[[str], Awaitable[None]], in_hand: _InHand) -> procrastinate.App:
    dsn = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    connector = procrastinate.PsycopgConnector(conninfo=dsn, kwargs=dict(CONNECTING), min_size=1, max_size=4)
    app = procrastinate.App(connector=connector)

    @app.task(name=_TASK, queue=_QUEUE, pass_context=True)
    async def carry_out_action(context: procrastinate.JobContext, action_id: str) -> None:
        in_hand.worker = context.job.worker_id
        in_hand.jobs.add(context.job.id)
        try:
            await carry_out(action_id)
        finally:
            in_hand.jobs.discard(context.job.id)

    return app


async def _take_over(app: procrastinate.App, in_hand: _InHand, heartbeat: float, dead_after: float) -> None:
    while not in_hand.over:
        await asyncio.sleep(heartbeat)
        try:
            for job in await app.job_manager.get_stalled_jobs(queue=_QUEUE, seconds_since_heartbeat=dead_after):
                logger.warning("taking over from an engine that gives no sign of life", extra={"job": job.task_kwargs})
                await _again(app, job)
            for job in await in_hand.dropped(app):
                logger.warning("a job ended without the database hearing of it", extra={"job": job.task_kwargs})
                await _again(app, job)
        except ConnectorException:
            logger.warning("could not look for jobs that nobody is at, trying again", exc_info=True)


async def _again(app: procrastinate.App, job: procrastinate.jobs.Job) -> None:
    # Whoever's clock is ahead must not put it off: any moment in the past is now.
    with suppress(ConnectorException):  # another engine was faster
        await app.job_manager.retry_job(job, retry_at=datetime.fromtimestamp(0, UTC))


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
