"""Whether this process can serve: read and write, with the right schema and a fresh view of the fleet."""

import asyncio
import logging
import time
from dataclasses import dataclass

from roost.compute.inventory.live_fleet import LiveFleet
from roost.store import schema
from roost.store.database import Database, Limits, can_write

logger = logging.getLogger(__name__)

_PROBE_SECONDS = 3.0
_FRESH_SECONDS = 1.0
"""How long an answer is reused: anyone may ask, and a check writes to the database."""


@dataclass(frozen=True, slots=True)
class State:
    """What is wrong, if anything, and how old the view of the fleet is in seconds (None: there is none yet)."""

    problems: tuple[str, ...]
    fleet_age: float | None


class Readiness:
    """Looks on its own connection, so that it has an answer also when all others are in use."""

    def __init__(self, database: Database, live: LiveFleet) -> None:
        limits = Limits(statement=_PROBE_SECONDS, lock=_PROBE_SECONDS, idle=_PROBE_SECONDS)
        self._database = database.like(limits, pool_size=1)
        self._live = live
        self._looking = asyncio.Lock()
        self._problems: tuple[str, ...] = ()
        self._looked_at = self._fresh_at = float("-inf")
        self.draining = False
        """The process is about to stop: new requests should go elsewhere."""

    async def state(self) -> State:
        """Whether this process can serve, found out at most once a second."""
        async with self._looking:
            if time.monotonic() - self._looked_at > _FRESH_SECONDS:
                self._problems = tuple(await self._look())
                self._looked_at = time.monotonic()
        age = None if self._fresh_at < 0 else round(time.monotonic() - self._fresh_at, 1)
        stopping = ("this process is stopping",) if self.draining else ()
        return State(stopping + self._problems, age)

    async def _look(self) -> list[str]:
        try:
            async with asyncio.timeout(_PROBE_SECONDS), self._database.begin() as connection:
                status = await connection.run_sync(schema.read)
                if status.problem:
                    return [status.problem]
                await self._live.sync(connection)
                if not await can_write(connection):
                    return ["the database can only be read"]
        except Exception as error:
            # Only the operator may see where the database is, and which user connects to it.
            logger.warning("the database cannot be read and written", extra={"error": str(error.__cause__ or error)})
            return ["the database does not answer"]
        self._fresh_at = time.monotonic()
        return []

    async def close(self) -> None:
        """Close the connection."""
        await self._database.close()
