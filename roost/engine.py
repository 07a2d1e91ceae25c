"""The engine: what must go on without a request. Any number of engines may run on one database."""

import asyncio
import logging

from roost.identity import tokens
from roost.store.database import Database

logger = logging.getLogger(__name__)

_PURGE_SECONDS = 60


async def run(database: Database) -> None:
    """Work until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_purge_tokens(database))


async def _purge_tokens(database: Database) -> None:
    """Forget expired tokens. They are refused in any case; this only keeps the table small."""
    while True:
        try:
            async with database.begin() as connection:
                await tokens.purge(connection)
        except Exception:
            logger.exception("expired tokens could not be purged, trying again")
        await asyncio.sleep(_PURGE_SECONDS)
