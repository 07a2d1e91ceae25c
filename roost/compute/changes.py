"""The change feed of the fleet: every change to a host, or to where it belongs, ends here in the same transaction."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.tables.compute import fleet_changes

CHANNEL = "roost_fleet"


async def host_changed(connection: AsyncConnection, host_ids: Collection[int]) -> None:
    """Note that these hosts changed, came or went, and tell the listeners which note to read once this commits.

    Generations are given out before they are committed, so a listener reads the row that it was told of, and never
    "all rows after the last one I saw".
    """
    if not host_ids:
        return
    change = fleet_changes.insert().values(host_ids=sorted(host_ids)).returning(fleet_changes.c.generation).cte()
    await connection.execute(sa.select(sa.func.pg_notify(CHANNEL, sa.cast(change.c.generation, sa.Text))))
