"""The engine's work on clusters: carry out actions, watch over health, and give signs of life."""

import asyncio
import logging
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from roost.clouds.base import Clouds
from roost.clusters import health, plugins, services
from roost.clusters.actions import leftovers, runner
from roost.clusters.actions.journal import Journal
from roost.clusters.actions.queue import Worker
from roost.clusters.actions.work import Engine
from roost.clusters.ids import new_id
from roost.config import Settings
from roost.store import watch
from roost.store.database import Database
from roost.store.rounds import Rounds
from roost.store.watch import FALLEN, WatchedChange

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 1.0


async def run(settings: Settings, database: Database, clouds: Clouds, rounds: Rounds) -> None:
    """Work until cancelled."""
    engine = Engine(new_id(), database, settings.clusters, plugins.load(settings), clouds, Journal(database))
    fallen, alive = asyncio.Event(), asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(rounds.every(settings.clusters.heartbeat, partial(_live, engine, alive)))
            await alive.wait()  # other engines take over the work of one without a heartbeat
            group.create_task(rounds.every(_WATCH_SECONDS, partial(_watch, engine), woken=fallen))
            group.create_task(watch.follow(database, partial(_hear, engine, fallen)))
            worker = Worker(engine, runner.carry_out)
            group.create_task(worker.run())
            group.create_task(rounds.every(_WATCH_SECONDS, partial(leftovers.clear, engine, worker.in_hand)))
    finally:
        await _leave(engine)


async def _live(engine: Engine, alive: asyncio.Event) -> None:
    async with engine.database.begin() as connection:
        await services.heartbeat(connection, engine.id)
    alive.set()


async def _hear(engine: Engine, fallen: asyncio.Event, changes: list[WatchedChange] | None) -> None:
    """Servers of the embedded cloud are gone or no longer active."""
    nodes = [node_id for each in changes or () if each.kind == FALLEN for node_id in each.ids or ()]
    if changes is not None and not nodes:
        return
    try:
        async with engine.database.begin() as connection:
            concerned = await health.hurry(connection, nodes)
    except SQLAlchemyError:
        logger.warning("could not react to a change in the cloud, the next check will", exc_info=True)
        return
    if concerned:
        fallen.set()


async def _watch(engine: Engine) -> None:
    await health.look(engine.database, engine.clouds, engine.plugins, private_urls=engine.settings.private_urls)


async def _leave(engine: Engine) -> None:
    try:
        async with engine.database.begin() as connection:
            await services.leave(connection, engine.id)
    except SQLAlchemyError:
        logger.warning("could not remove this engine from the list of services", exc_info=True)
