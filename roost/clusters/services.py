"""Engines: which there are, and whether they give signs of life."""

import socket
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.tables.clusters import services

BINARY = "senlin-engine"
"""What the clustering API's clients know the program that carries out actions as."""

_FORGOTTEN = timedelta(days=1)


async def heartbeat(connection: AsyncConnection, engine_id: str) -> None:
    """Say that an engine is alive, and forget those that have not been for long."""
    row = {"id": engine_id, "host": socket.gethostname(), "binary": BINARY, "topic": BINARY}
    alive = (
        insert(services).values(**row).on_conflict_do_update(index_elements=["id"], set_={"updated_at": sa.func.now()})
    )
    await connection.execute(alive)
    await connection.execute(services.delete().where(services.c.updated_at < sa.func.now() - _FORGOTTEN))


async def leave(connection: AsyncConnection, engine_id: str) -> None:
    """An engine that stops in order is not a dead one."""
    await connection.execute(services.delete().where(services.c.id == engine_id))


async def list_all(connection: AsyncConnection, dead_after: float) -> list[dict[str, Any]]:
    """All engines, with whether each is up."""
    up = services.c.updated_at > sa.func.now() - timedelta(seconds=dead_after)
    query = sa.select(services, up.label("up")).order_by(services.c.host, services.c.created_at)
    rows = (await connection.execute(query)).all()
    return [
        {
            **row._asdict(),
            "state": "up" if row.up else "down",
            "status": "disabled" if row.disabled else "enabled",
        }
        for row in rows
    ]
