"""How much projects have used over a time: the hours of their servers, of those that are gone too."""

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.inventory.flavors import ServerFlavor

# A server that has not been launched has used nothing.
_SERVERS = """
    SELECT CAST(id AS text) AS id, project_id, name, state, flavor, launched_at, ended_at,
        greatest(0, extract(epoch FROM least(coalesce(ended_at, now()), CAST(:stop AS timestamptz))
                                       - greatest(launched_at, CAST(:start AS timestamptz)))) AS seconds
    FROM (
        SELECT id, project_id, name, vm_state AS state, flavor, launched_at, CAST(NULL AS timestamptz) AS ended_at
        FROM servers WHERE launched_at < :stop AND (CAST(:project_id AS text) IS NULL OR project_id = :project_id)
        UNION ALL
        SELECT id, project_id, server ->> 'name', 'terminated', server -> 'flavor',
            CAST(server ->> 'launched_at' AS timestamptz), deleted_at
        FROM deleted_servers WHERE deleted_at >= :start
            AND CAST(server ->> 'launched_at' AS timestamptz) < :stop
            AND (CAST(:project_id AS text) IS NULL OR project_id = :project_id)
    ) AS used
"""
_PAGE = sa.text(
    f"SELECT * FROM ({_SERVERS}) AS found WHERE CAST(:marker AS text) IS NULL OR id > :marker ORDER BY id LIMIT :limit"
)
_TOTALS = sa.text(
    f"""SELECT project_id, sum(seconds) AS seconds,
        sum(seconds * CAST(flavor ->> 'vcpus' AS int)) AS vcpus,
        sum(seconds * CAST(flavor ->> 'memory_mb' AS int)) AS memory_mb,
        sum(seconds * CAST(flavor ->> 'disk_gb' AS int)) AS disk_gb
    FROM ({_SERVERS}) AS found GROUP BY project_id ORDER BY project_id"""
)


class UsedServer(NamedTuple):
    """A server over a time, as its project pays for it."""

    id: str
    project_id: str
    name: str
    state: str
    flavor: ServerFlavor
    launched_at: datetime
    ended_at: datetime | None
    seconds: Decimal


class ProjectUse(NamedTuple):
    """What a project used over a time, each figure times seconds."""

    project_id: str
    seconds: Decimal
    vcpus: Decimal
    memory_mb: Decimal
    disk_gb: Decimal


async def servers_of(
    connection: AsyncConnection,
    start: datetime,
    stop: datetime,
    project_id: str | None,
    limit: int,
    marker: str | None = None,
) -> list[UsedServer]:
    """The servers that were there between these moments, of a project or of all, by their ids."""
    asked = {"start": start, "stop": stop, "project_id": project_id, "limit": limit, "marker": marker}
    rows = await connection.execute(_PAGE, asked)
    return [UsedServer(**{**row._mapping, "flavor": ServerFlavor.from_json(row.flavor)}) for row in rows]


async def totals(connection: AsyncConnection, start: datetime, stop: datetime) -> list[ProjectUse]:
    """What each project used between these moments."""
    asked = {"start": start, "stop": stop, "project_id": None}
    return [ProjectUse(*row) for row in await connection.execute(_TOTALS, asked)]
