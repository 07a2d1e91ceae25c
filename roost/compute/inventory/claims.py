"""Claims: room kept on a host for a server. Taken and given back in bulk, in the caller's transaction.

Whoever changes claims or groups locks in this order, so that nobody waits in a circle: scopes, servers, project usage,
groups, hosts; several of a kind in the order of their keys.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.placement.fleet import Resources
from roost.store.database import worth_retrying
from roost.store.tables.compute import hosts
from roost.store.tables.servers import claims as claims_table
from roost.store.tables.servers import project_usage, server_groups

ATTEMPTS = 30
"""How often one who loses to others tries again."""
_LOCK_NOT_AVAILABLE = "55P03"


@dataclass(frozen=True, slots=True)
class Claim:
    """Room for one server on one host."""

    server_id: str
    host_id: int
    resources: Resources


@dataclass(frozen=True, slots=True)
class Usage:
    """What servers count for in their project's quota."""

    instances: int
    cores: int
    ram: int

    @classmethod
    def of(cls, flavor: Mapping[str, Any], step: Mapping[str, Any] | None) -> "Usage":
        """What one server counts for: the larger of its flavors until it is clear which one stays."""
        other = (step or {}).get("flavor") or flavor
        return cls(1, max(flavor["vcpus"], other["vcpus"]), max(flavor["memory_mb"], other["memory_mb"]))

    def __add__(self, more: "Usage") -> "Usage":
        return Usage(self.instances + more.instances, self.cores + more.cores, self.ram + more.ram)

    def __sub__(self, less: "Usage") -> "Usage":
        return Usage(self.instances - less.instances, self.cores - less.cores, self.ram - less.ram)


NOTHING = Usage(0, 0, 0)


async def lock_hosts(
    connection: AsyncConnection, host_ids: Iterable[int], *, wait: bool = True
) -> dict[int, sa.Row[Any]]:
    """The hosts as they are, and stay until this transaction ends.

    Who holds hosts already must not `wait` for more, out of order: it gets an error (see `lost_race`) and starts anew.
    """
    query = sa.select(hosts).where(hosts.c.id.in_(set(host_ids))).order_by(hosts.c.id)
    return {row.id: row for row in await connection.execute(query.with_for_update(nowait=not wait))}


def lost_race(error: BaseException) -> bool:
    """Whether a transaction failed only because another one came first, so that the same again may succeed."""
    if not isinstance(error, DBAPIError):
        return False
    return worth_retrying(error) or getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE


async def lock_groups(connection: AsyncConnection, group_ids: Iterable[str]) -> dict[str, sa.Row[Any]]:
    """The groups as they are, and stay until this transaction ends."""
    wanted = set(group_ids)
    if not wanted:
        return {}
    query = sa.select(server_groups).where(server_groups.c.id.in_(wanted)).order_by(server_groups.c.id)
    return {row.id: row for row in await connection.execute(query.with_for_update())}


async def touch_groups(connection: AsyncConnection, group_ids: Iterable[str]) -> None:
    """Say that the members of these groups, or where they are, have changed."""
    wanted = set(group_ids)
    if wanted:
        changed = server_groups.update().where(server_groups.c.id.in_(wanted))
        await connection.execute(changed.values(version=server_groups.c.version + 1))


async def take(connection: AsyncConnection, claims: Sequence[Claim]) -> None:
    """Write the claims down and count them against their hosts, which the caller has locked and looked at."""
    if not claims:
        return
    rows = [{"server_id": claim.server_id, "host_id": claim.host_id, **claim.resources._asdict()} for claim in claims]
    await connection.execute(_TAKE, {"rows": json.dumps(rows)})


async def change(connection: AsyncConnection, claim: Claim) -> None:
    """Make a claim larger or smaller; the caller has locked the host."""
    await connection.execute(
        _CHANGE, {"server_id": claim.server_id, "host_id": claim.host_id, **claim.resources._asdict()}
    )


async def release(connection: AsyncConnection, pairs: Sequence[tuple[str, int]]) -> set[int]:
    """Give back what these servers hold on these hosts; the hosts that have more room now."""
    if not pairs:
        return set()
    rows = [{"server_id": server_id, "host_id": host_id} for server_id, host_id in pairs]
    await lock_hosts(connection, {host_id for _, host_id in pairs})
    return {row.host_id for row in await connection.execute(_RELEASE, {"rows": json.dumps(rows)})}


async def held_by(connection: AsyncConnection, server_id: str) -> list[int]:
    """The hosts that keep room for a server."""
    query = sa.select(claims_table.c.host_id).where(claims_table.c.server_id == server_id)
    return list((await connection.execute(query)).scalars())


async def lock_usage(connection: AsyncConnection, project_ids: Iterable[str]) -> dict[str, sa.Row[Any]]:
    """What these projects use now, locked."""
    wanted = set(project_ids)
    if not wanted:
        return {}
    query = sa.select(project_usage).where(project_usage.c.project_id.in_(wanted)).order_by(project_usage.c.project_id)
    found = {row.project_id: row for row in await connection.execute(query.with_for_update())}
    if len(found) < len(wanted):
        await connection.execute(_ENSURE_USAGE, {"projects": sorted(wanted)})
        found = {row.project_id: row for row in await connection.execute(query.with_for_update())}
    return found


async def count_usage(connection: AsyncConnection, changes: Mapping[str, Usage]) -> None:
    """Add (or, negative, take off) what projects use."""
    rows = [
        {"project_id": project, "instances": usage.instances, "cores": usage.cores, "ram": usage.ram}
        for project, usage in sorted(changes.items())
    ]
    if rows:
        await connection.execute(_COUNT_USAGE, {"rows": json.dumps(rows)})


_TAKE = sa.text("""
    WITH wanted AS (
        SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb))
            AS r(server_id uuid, host_id int, vcpus int, memory_mb int, disk_gb int)
    ), taken AS (
        INSERT INTO claims (server_id, host_id, vcpus, memory_mb, disk_gb)
        SELECT server_id, host_id, vcpus, memory_mb, disk_gb FROM wanted
    )
    UPDATE hosts SET vcpus_used = vcpus_used + sums.vcpus, memory_mb_used = memory_mb_used + sums.memory_mb,
        disk_gb_used = disk_gb_used + sums.disk_gb, servers = hosts.servers + sums.servers
    FROM (SELECT host_id, sum(vcpus) AS vcpus, sum(memory_mb) AS memory_mb, sum(disk_gb) AS disk_gb,
                 count(*) AS servers FROM wanted GROUP BY host_id) AS sums
    WHERE hosts.id = sums.host_id
""")

_CHANGE = sa.text("""
    WITH before AS (
        SELECT * FROM claims WHERE server_id = CAST(:server_id AS uuid) AND host_id = :host_id
    ), changed AS (
        UPDATE claims SET vcpus = :vcpus, memory_mb = :memory_mb, disk_gb = :disk_gb FROM before
        WHERE claims.server_id = before.server_id AND claims.host_id = before.host_id
    )
    UPDATE hosts SET vcpus_used = vcpus_used + :vcpus - before.vcpus,
        memory_mb_used = memory_mb_used + :memory_mb - before.memory_mb,
        disk_gb_used = disk_gb_used + :disk_gb - before.disk_gb
    FROM before WHERE hosts.id = before.host_id
""")

_RELEASE = sa.text("""
    WITH gone AS (
        DELETE FROM claims USING jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(server_id uuid, host_id int)
        WHERE claims.server_id = r.server_id AND claims.host_id = r.host_id
        RETURNING claims.*
    ), sums AS (
        SELECT host_id, sum(vcpus) AS vcpus, sum(memory_mb) AS memory_mb, sum(disk_gb) AS disk_gb,
               count(*) AS servers FROM gone GROUP BY host_id
    )
    UPDATE hosts SET vcpus_used = vcpus_used - sums.vcpus, memory_mb_used = memory_mb_used - sums.memory_mb,
        disk_gb_used = disk_gb_used - sums.disk_gb, servers = hosts.servers - sums.servers
    FROM sums WHERE hosts.id = sums.host_id RETURNING hosts.id AS host_id
""")

_ENSURE_USAGE = sa.text("""
    INSERT INTO project_usage (project_id) SELECT unnest(CAST(:projects AS text[])) ON CONFLICT DO NOTHING
""")

_COUNT_USAGE = sa.text("""
    UPDATE project_usage AS p
    SET instances = p.instances + r.instances, cores = p.cores + r.cores, ram = p.ram + r.ram
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(project_id text, instances int, cores int, ram bigint)
    WHERE p.project_id = r.project_id
""")
