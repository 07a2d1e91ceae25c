"""Engines: their heartbeats, and which of them are up."""

import socket
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.tables.clusters import services

BINARY = "senlin-engine"
"""The name under which clients of the clustering API know the program that carries out actions."""

_FORGOTTEN = timedelta(days=1)


async def heartbeat(connection: AsyncConnection, engine_id: str) -> None:
    """Record that an engine is alive, and forget those that have been dead for long."""
    row = {"id": engine_id, "host": socket.gethostname(), "binary": BINARY, "topic": BINARY}
    alive = (
        insert(services).values(**row).on_conflict_do_update(index_elements=["id"], set_={"updated_at": sa.func.now()})
    )
    await connection.execute(alive)
    await connection.execute(services.delete().where(services.c.updated_at < sa.func.now() - _FORGOTTEN))


async def leave(connection: AsyncConnection, engine_id: str) -> None:
    """Remove an engine that stops in an orderly way, so that it does not count as dead."""
    await connection.execute(services.delete().where(services.c.id == engine_id))


@dataclass(frozen=True, slots=True)
class EngineService:
    """An engine, as operators see it."""

    id: str
    host: str
    binary: str
    topic: str
    disabled_reason: str | None
    updated_at: datetime
    """Its last heartbeat."""
    status: str
    state: str


def is_up(dead_after: float) -> sa.ColumnElement[bool]:
    """Whether the last heartbeat of an engine is at most so many seconds old."""
    return services.c.updated_at > sa.func.now() - timedelta(seconds=dead_after)


async def list_all(connection: AsyncConnection, dead_after: float) -> list[EngineService]:
    """All engines, with whether each is up."""
    own, up = services.c, is_up(dead_after)
    query = sa.select(
        *(own.id, own.host, own.binary, own.topic, own.disabled_reason, own.updated_at),
        sa.case((own.disabled, "disabled"), else_="enabled"),
        sa.case((up, "up"), else_="down"),
    )
    rows = await connection.execute(query.order_by(own.host, own.created_at))
    return [EngineService(*row) for row in rows]
