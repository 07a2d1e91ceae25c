"""The engine: what must go on without a request. Any number of engines may run on one database."""

import asyncio
import logging
import shutil

from roost.clouds import balancer, choice
from roost.clouds.migrations import NovaMover
from roost.clusters import engine as cluster_engine
from roost.compute.answers import audit, drift, history, repairs
from roost.compute.groups import notifications
from roost.compute.inventory import changes
from roost.compute.scheduling import lifecycle
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.identity import sign_ins, tokens
from roost.network import attachments
from roost.store import feed, retention, row_counts
from roost.store.database import Database
from roost.store.tables.changes import claim_changes, watch_changes

logger = logging.getLogger(__name__)

_PURGE_SECONDS = 60


async def run(database: Database, settings: Settings) -> None:
    """Work until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_keep_forgetting(database, settings))
        group.create_task(row_counts.keep_counting(database, settings.clusters.dead_after))
        group.create_task(lifecycle.run(database))
        group.create_task(history.keep_sampling(database))
        group.create_task(notifications.keep_sending(database, settings))
        group.create_task(audit.keep_auditing(database, settings))
        scheduler = Scheduler(database, settings)
        group.create_task(scheduler.keep_current())
        group.create_task(drift.keep_looking(database, settings, scheduler.live))
        clouds = choice.choose(settings, database, scheduler)
        group.create_task(cluster_engine.run(settings, database, clouds))
        front = choice.front(settings, database)
        mover = repairs.EmbeddedMover(database, scheduler) if front is None else NovaMover(front, scheduler)
        group.create_task(repairs.run(database, scheduler, mover, settings.group_audit_seconds))
        if front is None:
            group.create_task(balancer.run(database, shutil.which("haproxy")))
        else:
            group.create_task(front.keep_following())


async def _keep_forgetting(database: Database, settings: Settings) -> None:
    while True:
        try:
            await forget(database, settings)
        except Exception:
            logger.exception("old rows could not be purged, trying again")
        await asyncio.sleep(_PURGE_SECONDS)


async def forget(database: Database, settings: Settings) -> None:
    """Forget what nobody will ask for: expired tokens, failures to sign in, changes of the fleet long past, ports that
    were reserved for servers that never came, and what ended long ago."""
    async with database.begin() as connection:
        await tokens.purge(connection)
        await sign_ins.purge(connection)
        await changes.forget_old(connection)
        await feed.forget_old(connection, (claim_changes, watch_changes))
        await attachments.forget_pending(connection)
    if settings.keep_days:
        await retention.purge(database, settings.keep_days, notifications=not notifications.wanted(settings))
