"""The engine: the work that goes on without a request. Any number of engines may run on one database."""

import asyncio
import shutil
from functools import partial

from roost.clouds import balancer, choice
from roost.clouds.migrations import NovaMover
from roost.clusters import engine as cluster_engine
from roost.compute.answers import audit, history, repairs
from roost.compute.answers.violations import Violations
from roost.compute.groups import notifications
from roost.compute.inventory import changes, images
from roost.compute.inventory.image_files import ImageFiles
from roost.compute.moves import repair_steps
from roost.compute.scheduling import lifecycle
from roost.compute.scheduling.scheduler import Scheduler
from roost.config import Settings
from roost.identity import sign_ins, tokens
from roost.network import attachments
from roost.store import feed, retention, row_counts
from roost.store.database import Database
from roost.store.locks import AdvisoryLock
from roost.store.rounds import Rounds
from roost.store.tables.changes import claim_changes, watch_changes
from roost.volume import block_devices

_FORGET_SECONDS = 60
_COUNT_SECONDS = 15
_REPAIR_SECONDS = 0.5


async def run(database: Database, settings: Settings) -> None:
    """Work until cancelled."""
    scheduler = Scheduler(database, settings)
    clouds, front = choice.choose(settings, database, scheduler), choice.front(settings, database)
    mover = repair_steps.EmbeddedMover(database, scheduler) if front is None else NovaMover(front, scheduler)
    rounds = Rounds(database)
    every, look = rounds.every, settings.group_audit_seconds
    violations = Violations(scheduler.live)

    async def audit_all() -> None:
        await audit.look(database, settings, violations)

    try:
        async with asyncio.TaskGroup() as group:
            begin = group.create_task
            begin(scheduler.keep_current())
            begin(every(_FORGET_SECONDS, partial(forget, database, settings), turn=AdvisoryLock.HISTORY))
            begin(every(_COUNT_SECONDS, partial(row_counts.count, database, settings.clusters.dead_after)))
            begin(every(history.SAMPLE_SECONDS, partial(history.sample, database)))
            begin(every(look, audit_all, turn=AdvisoryLock.AUDIT))
            begin(every(look, partial(repairs.mend_all, database, scheduler), turn=AdvisoryLock.CONTINUOUS_REPAIRS))
            advance = partial(repair_steps.advance_all, database, mover)
            begin(every(_REPAIR_SECONDS, advance, turn=AdvisoryLock.REPAIRS))
            begin(lifecycle.run(database, rounds, settings))
            begin(notifications.keep_sending(database, settings, rounds))
            begin(cluster_engine.run(settings, database, clouds, rounds))
            if front is None:
                begin(balancer.run(database, shutil.which("haproxy"), rounds))
            else:
                begin(every(settings.group_follow_seconds, front.look, turn=AdvisoryLock.FOLLOWING))
    finally:
        await rounds.close()


async def forget(database: Database, settings: Settings) -> None:
    """Forget expired tokens, old failures to sign in, old changes of the fleet, ports and volumes reserved for
    servers that never came, files of images that are gone, and what ended long ago."""
    async with database.begin() as connection:
        await tokens.purge(connection)
        await sign_ins.purge(connection)
        await changes.forget_old(connection)
        await feed.forget_old(connection, (claim_changes, watch_changes))
        await attachments.forget_pending(connection)
        await block_devices.forget_pending(connection)
        known = await images.ids(connection)
    await asyncio.to_thread(ImageFiles.of(settings).sweep, known)
    if settings.keep_days:
        await retention.purge(database, settings.keep_days, notifications=not notifications.wanted(settings))
