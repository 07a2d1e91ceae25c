"""Claims: room kept on a host for a server. Taken and given back in bulk, in the caller's transaction.

Room is given back in two steps: what a claim holds is written down first, which locks no host; then, as the last thing
of a transaction, `give_back` locks groups and hosts and lets the room go in one round trip.

Every transaction that changes claims or groups locks in this order, so that there are no deadlocks: scopes, servers,
project usage (only to check a limit), groups, hosts, shards of usage; several of a kind in the order of their keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost import quick_json
from roost.compute.inventory.flavors import ServerFlavor
from roost.placement.fleet import Resources
from roost.store import bulk
from roost.store.database import worth_retrying
from roost.store.tables.compute import hosts
from roost.store.tables.servers import claims as claims_table
from roost.store.tables.servers import server_groups, usage_shards

ATTEMPTS = 30
"""How often a transaction that lost a race is tried again."""
_LOCK_NOT_AVAILABLE = "55P03"


@dataclass(frozen=True, slots=True)
class Claim:
    """Room for one server on one host."""

    server_id: str
    host_id: int
    resources: Resources


@dataclass(frozen=True, slots=True)
class FreedRoom:
    """Room of a host that is no longer claimed; negative where a claim has grown."""

    host_id: int
    resources: Resources
    servers: int
    """How many servers left."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What servers count for in their project's quota."""

    instances: int
    cores: int
    ram: int

    @classmethod
    def of(cls, flavor: ServerFlavor, other: ServerFlavor | None) -> "Usage":
        """What one server counts for: the larger of its flavors until it is clear which one stays."""
        other = other or flavor
        return cls(1, max(flavor.vcpus, other.vcpus), max(flavor.memory_mb, other.memory_mb))

    def __add__(self, more: "Usage") -> "Usage":
        return Usage(self.instances + more.instances, self.cores + more.cores, self.ram + more.ram)

    def __sub__(self, less: "Usage") -> "Usage":
        return Usage(self.instances - less.instances, self.cores - less.cores, self.ram - less.ram)


NOTHING = Usage(0, 0, 0)


class LockedHost(NamedTuple):
    """A host that no other transaction can claim."""

    enabled: bool
    forced_down: bool
    free: Resources


_FREE = tuple(hosts.c[name] - hosts.c[f"{name}_used"] for name in Resources._fields)


async def lock_hosts(
    connection: AsyncConnection, host_ids: Iterable[int], *, wait: bool = True
) -> dict[int, LockedHost]:
    """Lock hosts until this transaction ends, and read them.

    A transaction that holds hosts already must not `wait` for more, out of order: it gets an error (see `lost_race`)
    and starts again.
    """
    query = sa.select(hosts.c.id, hosts.c.enabled, hosts.c.forced_down, *_FREE).where(hosts.c.id.in_(set(host_ids)))
    rows = await connection.execute(query.order_by(hosts.c.id).with_for_update(nowait=not wait, key_share=True))
    return {
        host_id: LockedHost(enabled, forced_down, Resources(*free)) for host_id, enabled, forced_down, *free in rows
    }


def lost_race(error: BaseException) -> bool:
    """Whether a transaction failed only because another came first; a retry may succeed."""
    if not isinstance(error, DBAPIError):
        return False
    return worth_retrying(error) or getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE


async def lock_groups(connection: AsyncConnection, group_ids: Iterable[str]) -> dict[str, int]:
    """Lock these groups until this transaction ends; returns their versions."""
    wanted = set(group_ids)
    if not wanted:
        return {}
    query = sa.select(server_groups.c.id, server_groups.c.version).where(server_groups.c.id.in_(wanted))
    rows = await connection.execute(query.order_by(server_groups.c.id).with_for_update(key_share=True))
    return {row.id: row.version for row in rows}


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
    await connection.execute(_TAKE, {"rows": rows})


async def resize(connection: AsyncConnection, claims: Sequence[Claim]) -> list[FreedRoom]:
    """Make claims larger or smaller; returns how much more room their hosts have."""
    if not claims:
        return []
    rows = [{"server_id": claim.server_id, "host_id": claim.host_id, **claim.resources._asdict()} for claim in claims]
    changed = await connection.execute(_RESIZE, {"rows": rows})
    return [FreedRoom(host_id, Resources(*less), 0) for host_id, *less in changed]


async def give_up(connection: AsyncConnection, pairs: Sequence[tuple[str, int]]) -> list[FreedRoom]:
    """End the claims of these servers on these hosts."""
    if not pairs:
        return []
    rows = [{"server_id": server_id, "host_id": host_id} for server_id, host_id in pairs]
    ended = await connection.execute(_GIVE_UP, {"rows": rows})
    return [FreedRoom(host_id, Resources(*held), 1) for host_id, *held in ended]


async def give_back(
    connection: AsyncConnection,
    freed: Sequence[FreedRoom],
    *,
    groups: Iterable[str] = (),
    usage: Mapping[str, Usage] | None = None,
) -> None:
    """Let others have this room; the members of these groups, and what these projects use, have changed too."""
    asked = {
        "freed": [{"host_id": each.host_id, "servers": each.servers, **each.resources._asdict()} for each in freed],
        "groups": sorted(set(groups)),
        "usage": [{"project_id": project_id, **asdict(change)} for project_id, change in (usage or {}).items()],
    }
    if any(asked.values()):
        await connection.execute(_GIVE_BACK, {"asked": quick_json.dumps(asked).decode()})


async def held_by(connection: AsyncConnection, server_id: str) -> list[int]:
    """The hosts that keep room for a server."""
    query = sa.select(claims_table.c.host_id).where(claims_table.c.server_id == server_id)
    return list((await connection.execute(query)).scalars())


async def lock_usage(connection: AsyncConnection, project_id: str) -> Usage:
    """What a project uses now. Other transactions that check a limit wait until this one ends."""
    await connection.execute(_ENSURE_USAGE, {"project_id": project_id})
    await connection.execute(_LOCK_USAGE, {"project_id": project_id})
    return await usage(connection, project_id)


async def usage(connection: AsyncConnection, project_id: str) -> Usage:
    """What a project uses now."""
    used = (await connection.execute(_READ_USAGE, {"project_id": project_id})).one()
    return Usage(*map(int, used))


async def count_usage(connection: AsyncConnection, changes: Mapping[str, Usage]) -> None:
    """Add to what projects use (or subtract, if negative), without waiting for others that do the same."""
    rows = [{"project_id": project, **asdict(usage)} for project, usage in sorted(changes.items()) if usage != NOTHING]
    if rows:
        await connection.execute(_COUNT_USAGE, {"rows": rows})


_TAKEN = bulk.insert(claims_table).returning(*claims_table.c).cte("taken")
_TAKEN_OF_HOST = (
    sa.select(
        _TAKEN.c.host_id,
        *(sa.func.sum(_TAKEN.c[name]).label(name) for name in Resources._fields),
        sa.func.count().label("servers"),
    )
    .group_by(_TAKEN.c.host_id)
    .subquery()
)
_TAKE = (
    hosts.update()
    .where(hosts.c.id == _TAKEN_OF_HOST.c.host_id)
    .values({f"{name}_used": hosts.c[f"{name}_used"] + _TAKEN_OF_HOST.c[name] for name in Resources._fields})
    .values(servers=hosts.c.servers + _TAKEN_OF_HOST.c.servers, room_version=hosts.c.room_version + 1)
)

_AMOUNTS = tuple(claims_table.c[name] for name in Resources._fields)
_LEAVING = bulk.given(*claims_table.primary_key)
_GIVE_UP = (
    claims_table.delete()
    .where(*(key == _LEAVING.c[key.name] for key in claims_table.primary_key))
    .returning(claims_table.c.host_id, *_AMOUNTS)
)
_BEFORE = claims_table.alias("before")
_RESIZED = bulk.given(*claims_table.primary_key, *_AMOUNTS)
_RESIZE = (
    claims_table.update()
    .where(*(key == _RESIZED.c[key.name] for key in claims_table.primary_key))
    .where(*(key == _BEFORE.c[key.name] for key in claims_table.primary_key))
    .values({column.name: _RESIZED.c[column.name] for column in _AMOUNTS})
    .returning(claims_table.c.host_id, *(_BEFORE.c[each.name] - each for each in _AMOUNTS))
)
_GIVE_BACK = sa.text("SELECT roost_give_back(CAST(:asked AS jsonb))")

_ENSURE_USAGE = sa.text("INSERT INTO project_usage (project_id) VALUES (:project_id) ON CONFLICT DO NOTHING")
_LOCK_USAGE = sa.text("SELECT FROM project_usage WHERE project_id = :project_id FOR NO KEY UPDATE")
_READ_USAGE = sa.text("""
    SELECT coalesce(sum(instances), 0), coalesce(sum(cores), 0), coalesce(sum(ram), 0) FROM (
        SELECT instances, cores, ram FROM project_usage WHERE project_id = :project_id
        UNION ALL SELECT instances, cores, ram FROM usage_shards WHERE project_id = :project_id
    ) AS parts
""")

_USED = bulk.given(*(usage_shards.c[name] for name in ("project_id", "instances", "cores", "ram")))
_SHARE = insert(usage_shards).from_select(
    ["project_id", "shard", "instances", "cores", "ram"],
    sa.select(_USED.c.project_id, sa.text("pg_backend_pid() % 64"), _USED.c.instances, _USED.c.cores, _USED.c.ram),
)
_COUNT_USAGE = _SHARE.on_conflict_do_update(
    constraint=usage_shards.primary_key,
    set_={name: usage_shards.c[name] + _SHARE.excluded[name] for name in ("instances", "cores", "ram")},
)
