"""Tests of two transactions at once: go on when somebody waits for a lock, however slow the machine is."""

import asyncio

import sqlalchemy as sa

from roost.store.database import Database

_WAITING = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


async def until_waiting(database: Database, number: int = 1) -> None:
    """Return when so many sessions wait for locks that others hold."""
    for _ in range(6000):
        # In one transaction the view would stay as it was first read.
        async with database.begin() as connection:
            if await connection.scalar(_WAITING) == number:
                return
        await asyncio.sleep(0.01)
    raise AssertionError(f"there were never {number} sessions that waited")
