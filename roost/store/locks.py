"""Advisory locks: what one transaction, or one engine, does at a time in all processes."""

from enum import IntEnum

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection


class AdvisoryLock(IntEnum):
    """Every advisory lock with its own number. Processes of two releases may share a database: numbers stay."""

    SCHEMA = 7_266_011
    FLEET_CHANGES = 7_266_012
    NOTIFICATIONS = 7_266_013
    MIRROR = 7_266_014
    FOLLOWING = 7_266_015
    REPAIRS = 7_266_016
    AUDIT = 7_266_017
    CONTINUOUS_REPAIRS = 7_266_018
    HISTORY = 7_266_019
    IMPORT = 7_266_020
    DRAINS = 7_266_021
    INVENTORY = 7_266_022


async def hold(connection: AsyncConnection, lock: AdvisoryLock | str, *, shared: bool = False) -> None:
    """Hold a lock until the transaction ends. A text names a lock of its own, such as `key pairs of USER`: two requests
    that count what there is, and add to it, take turns."""
    key = sa.func.hashtextextended(lock, 0) if isinstance(lock, str) else int(lock)
    take = sa.func.pg_advisory_xact_lock_shared if shared else sa.func.pg_advisory_xact_lock
    await connection.execute(sa.select(take(key)))
