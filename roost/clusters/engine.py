"""The engine's work on clusters: carry out actions, wake those whose time has come, and say that it is alive."""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from roost.clouds.base import Clouds
from roost.clusters import health, plugins, services
from roost.clusters.actions import control, queue, runner
from roost.clusters.actions.work import Engine
from roost.clusters.ids import new_id
from roost.compute.scheduling import lifecycle
from roost.config import Settings
from roost.store.database import Database

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.5
_WATCH_SECONDS = 1.0


async def run(settings: Settings, database: Database, clouds: Clouds) -> None:
    """Work until cancelled."""
    engine = Engine(new_id(), database, settings.clusters, plugins.load(settings), clouds)
    logging.getLogger("procrastinate").setLevel(logging.WARNING)
    fallen = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_live(engine))
            group.create_task(_tick(engine))
            group.create_task(_watch(engine, fallen))
            group.create_task(database.listen(lifecycle.FALLEN, partial(_hear, engine, fallen)))
            group.create_task(
                queue.work(
                    database,
                    lambda action_id: runner.carry_out(engine, action_id),
                    concurrency=settings.clusters.concurrency,
                    heartbeat=settings.clusters.heartbeat,
                    dead_after=settings.clusters.dead_after,
                )
            )
    finally:
        await _leave(engine)


async def _live(engine: Engine) -> None:
    while True:
        try:
            async with engine.database.begin() as connection:
                await services.heartbeat(connection, engine.id)
                await control.find_lost(connection, engine.settings.dead_after)
        except SQLAlchemyError:
            logger.warning("could not give a sign of life, trying again", exc_info=True)
        await asyncio.sleep(engine.settings.heartbeat)


async def _tick(engine: Engine) -> None:
    while True:
        try:
            async with engine.database.begin() as connection:
                await control.wake(connection)
        except SQLAlchemyError:
            logger.warning("could not look for actions whose time has come, trying again", exc_info=True)
        await asyncio.sleep(_TICK_SECONDS)


async def _hear(engine: Engine, fallen: asyncio.Event, told: str) -> None:
    """Servers of the embedded cloud are gone or no longer active."""
    try:
        async with engine.database.begin() as connection:
            concerned = await health.hurry(connection, told.split(",") if told else ())
    except SQLAlchemyError:
        logger.warning("could not act on what the cloud told, the next look will", exc_info=True)
        return
    if concerned:
        fallen.set()


async def _watch(engine: Engine, fallen: asyncio.Event) -> None:
    while True:
        fallen.clear()
        try:
            await health.look(engine.database, engine.clouds, engine.plugins, private_urls=engine.settings.private_urls)
        except SQLAlchemyError:
            logger.warning("could not look after the health of clusters, trying again", exc_info=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(_WATCH_SECONDS):
                await fallen.wait()


async def _leave(engine: Engine) -> None:
    try:
        async with engine.database.begin() as connection:
            await services.leave(connection, engine.id)
    except SQLAlchemyError:
        logger.warning("could not say goodbye", exc_info=True)
