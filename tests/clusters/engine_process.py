"""An engine in a process of its own, for tests that kill it: python -m tests.clusters.engine_process URL."""

import asyncio
import sys
from typing import Any

from roost import config
from roost.clouds.embedded import EmbeddedClouds
from roost.clusters import engine
from roost.compute import lifecycle
from roost.compute.scheduling import Scheduler
from roost.store.database import Database
from tests.clusters.house import UNLIMITED

HEARTBEAT, DEAD_AFTER = 0.2, 1.0


async def main(url: str) -> None:
    """Carry out actions until killed."""
    options: dict[str, Any] = {**UNLIMITED, "clusters__heartbeat": HEARTBEAT, "clusters__dead_after": DEAD_AFTER}
    settings = config.with_database(config.load(**options), url)
    database = Database(url)
    clouds = EmbeddedClouds(database, settings, Scheduler(database, settings))
    print("ready", flush=True)
    await asyncio.gather(engine.run(settings, database, clouds), lifecycle.run(database))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
