"""Servers for tests of groups: rows on a host of one's choice, without a scheduler that would choose another."""

import uuid

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.store.database import Database
from roost.store.tables.compute import hosts
from roost.store.tables.servers import servers


async def put_server(
    database: Database, project_id: str, *, host: str | None = None, group: str | None = None, user_id: str = "somebody"
) -> str:
    """A server that runs on this host, in this group."""
    async with database.begin() as connection:
        row = _row(project_id, user_id, group) | {"host_id": await _host_id(connection, host)}
        await connection.execute(servers.insert().values(row))
        return str(row["id"])


def _row(project_id: str, user_id: str, group: str | None) -> dict[str, object]:
    identifier = str(uuid.uuid4())
    return {
        "id": identifier,
        "project_id": project_id,
        "user_id": user_id,
        "name": f"server-{identifier[:8]}",
        "hostname": f"server-{identifier[:8]}",
        "flavor": {},
        "reservation_id": "r-test",
        "vm_state": "active",
        "group_id": group,
    }


async def _host_id(connection: AsyncConnection, name: str | None) -> int | None:
    return await connection.scalar(sa.select(hosts.c.id).where(hosts.c.name == name))
