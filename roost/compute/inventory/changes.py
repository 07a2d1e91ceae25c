"""The change feed of the fleet: every change to a host, or to where it belongs, is numbered in its own transaction."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.locks import AdvisoryLock, hold
from roost.store.tables.compute import fleet_changes


async def host_changed(connection: AsyncConnection, host_ids: Collection[int]) -> None:
    """Note that these hosts changed, came or went."""
    if not host_ids:
        return
    # Held until the transaction ends: generations have no gaps and become visible in their order.
    await hold(connection, AdvisoryLock.FLEET_CHANGES)
    following = sa.select(sa.func.coalesce(sa.func.max(fleet_changes.c.generation), 0) + 1).scalar_subquery()
    await connection.execute(fleet_changes.insert().values(generation=following, host_ids=sorted(host_ids)))


async def latest_generation(connection: AsyncConnection) -> int:
    """The number of the newest change that is committed."""
    query = sa.select(sa.func.coalesce(sa.func.max(fleet_changes.c.generation), 0))
    return int((await connection.execute(query)).scalar_one())


async def forget_old(connection: AsyncConnection, keep: int = 10_000) -> None:
    """Drop old changes: a process that is further behind reloads the whole fleet."""
    newest = sa.select(sa.func.max(fleet_changes.c.generation)).scalar_subquery()
    await connection.execute(fleet_changes.delete().where(fleet_changes.c.generation < newest - keep))
