"""Events: what happened to clusters and nodes, for people to read afterwards."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters.ids import new_id
from roost.store.tables.clusters import events

CRITICAL, ERROR, WARNING, INFO, DEBUG = 50, 40, 30, 20, 10
LEVELS = {"CRITICAL": CRITICAL, "ERROR": ERROR, "WARN": WARNING, "INFO": INFO, "DEBUG": DEBUG}


async def record(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write events down, in the transaction that did what they tell of."""
    if rows:
        await connection.execute(sa.insert(events).values([{"id": new_id(), **row} for row in rows]))
