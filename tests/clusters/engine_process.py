"""An engine in a separate process, for tests that kill it. It is forked from a process that has imported it all."""

import asyncio
from multiprocessing.connection import Connection
from typing import Any

from roost import config
from roost.clouds.embedded import EmbeddedClouds
from roost.clusters import engine
from roost.compute.scheduling import lifecycle
from roost.compute.scheduling.scheduler import Scheduler
from roost.store.database import Database
from roost.store.rounds import Rounds
from tests.clusters.house import UNLIMITED

HEARTBEAT, DEAD_AFTER = 0.2, 1.0


def main(url: str, begun: "Connection[str, None]") -> None:
    """Carry out actions until killed."""
    asyncio.run(_run(url, begun))


async def _run(url: str, begun: "Connection[str, None]") -> None:
    options: dict[str, Any] = {**UNLIMITED, "clusters__heartbeat": HEARTBEAT, "clusters__dead_after": DEAD_AFTER}
    settings = config.with_database(config.load(**options), url)
    database = Database(url)
    clouds = EmbeddedClouds(database, settings, Scheduler(database, settings))
    begun.send("ready")
    rounds = Rounds(database)
    await asyncio.gather(engine.run(settings, database, clouds, rounds), lifecycle.run(database, rounds))
