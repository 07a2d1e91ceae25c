"""The recount: everything that is kept as a sum is counted again from the rows that it is the sum of."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers import audit
from roost.compute.scheduling import lifecycle
from roost.store.database import Database

# Each query finds what is wrong: a sum that is off, or a server without its due claims.
WRONG = {
    "a host's sums are not those of its claims": """
        SELECT h.name, h.vcpus_used, h.memory_mb_used, h.disk_gb_used, h.servers, c.*
        FROM hosts h, LATERAL (
            SELECT coalesce(sum(vcpus), 0) AS vcpus, coalesce(sum(memory_mb), 0) AS memory,
                   coalesce(sum(disk_gb), 0) AS disk, count(*) AS number
            FROM claims WHERE host_id = h.id) c
        WHERE (h.vcpus_used, h.memory_mb_used, h.disk_gb_used, h.servers) <> (c.vcpus, c.memory, c.disk, c.number)
    """,
    "a host has given more than it has": """
        SELECT name FROM hosts WHERE vcpus_used > vcpus OR memory_mb_used > memory_mb OR disk_gb_used > disk_gb
    """,
    "a project's usage is not that of its servers": """
        SELECT coalesce(u.project_id, s.project_id), u.instances, s.instances, u.cores, s.cores, u.ram, s.ram
        FROM (
            SELECT project_id, sum(instances) AS instances, sum(cores) AS cores, sum(ram) AS ram FROM (
                SELECT project_id, instances, cores, ram FROM project_usage
                UNION ALL SELECT project_id, instances, cores, ram FROM usage_shards) AS parts
            GROUP BY project_id) u FULL JOIN (
            SELECT project_id, count(*) AS instances,
                sum(greatest((flavor->>'vcpus')::int, (step->'flavor'->>'vcpus')::int)) AS cores,
                sum(greatest((flavor->>'memory_mb')::int, (step->'flavor'->>'memory_mb')::int)) AS ram
            FROM servers GROUP BY project_id) s USING (project_id)
        WHERE (coalesce(u.instances, 0), coalesce(u.cores, 0), coalesce(u.ram, 0))
            <> (coalesce(s.instances, 0), coalesce(s.cores, 0), coalesce(s.ram, 0))
    """,
    "a project's groups are miscounted": """
        SELECT u.project_id, u.server_groups FROM project_usage u
        WHERE u.server_groups <> (SELECT count(*) FROM server_groups g WHERE g.project_id = u.project_id)
    """,
    "a server at rest does not hold what it should": """
        SELECT s.id, s.vm_state, s.host_id, array_agg(c.host_id)
        FROM servers s LEFT JOIN claims c ON c.server_id = s.id
        WHERE s.task_state IS NULL
        GROUP BY s.id
        HAVING array_remove(array_agg(DISTINCT c.host_id), NULL) <> CASE
            WHEN s.host_id IS NULL THEN '{}'
            WHEN s.vm_state = 'resized' THEN (
                SELECT array_agg(DISTINCT h ORDER BY h) FROM unnest(ARRAY[s.host_id, (s.step->>'source')::int]) h)
            ELSE ARRAY[s.host_id] END
    """,
    "a claim at rest is not of the size of its server": """
        SELECT s.id, s.flavor, c.* FROM servers s JOIN claims c ON c.server_id = s.id
        WHERE s.task_state IS NULL AND s.vm_state <> 'resized' AND (c.vcpus, c.memory_mb, c.disk_gb) <>
            ((s.flavor->>'vcpus')::int, (s.flavor->>'memory_mb')::int, (s.flavor->>'disk_gb')::int)
    """,
    "a server runs nowhere": """
        SELECT id FROM servers WHERE host_id IS NULL AND vm_state NOT IN ('error', 'shelved_offloaded')
    """,
}


async def check(database: Database, *, rules: bool = True) -> None:
    """Fail unless every sum is exact and, if asked, no hard rule of any group is broken."""
    async with database.begin() as connection:
        for sentence, query in WRONG.items():
            assert await _rows(connection, query) == [], sentence
    if rules:
        async with database.begin() as connection:
            assert await audit.audit_all(connection) == []


async def settle(database: Database) -> None:
    """Finish every step that is due, as the engine would."""
    while await lifecycle.finish(database):
        pass


async def _rows(connection: AsyncConnection, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await connection.execute(sa.text(query))]
