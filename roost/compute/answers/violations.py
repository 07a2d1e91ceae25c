"""Which rules are broken now, in all groups: remembered, and found out again only for the groups that changed."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, UUID
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import groups
from roost.compute.inventory.live_fleet import LiveFleet
from roost.placement.audit import Violation, audit
from roost.placement.rules import Rule
from roost.store.tables.compute import fleet_changes
from roost.store.tables.servers import server_groups, servers

_AT_A_TIME = 1000
_BETWEEN_PAUSES = 100

# Numbers are never given twice and versions only rise, so where these are the same no group came, went or changed.
_STATE = sa.select(
    sa.func.count(), sa.func.max(server_groups.c.number), sa.func.sum(server_groups.c.version)
).select_from(server_groups)


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that members of a group break, and the hosts that those are on, by server."""

    group_id: str
    group_name: str
    project_id: str
    violation: Violation
    places: dict[str, int]


@dataclass(slots=True)
class _Audited:
    version: int
    name: str
    hosts: frozenset[int]
    skewed: bool
    """Whether hosts without members matter too."""
    broken: tuple[BrokenRule, ...]


@dataclass(slots=True)
class Violations:
    """The audits of all groups, as far as they still hold."""

    live: LiveFleet
    _groups: dict[str, _Audited] = field(default_factory=dict)
    _generation: int = -1
    _state: Any = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def now(self, connection: AsyncConnection) -> list[BrokenRule]:
        """Every rule that is broken, as the transaction sees it."""
        async with self._lock:
            await self.live.sync(connection)
            try:
                await self._catch_up(connection)
            except BaseException:
                self._groups, self._generation, self._state = {}, -1, None
                raise
            return list(self._all())

    async def _catch_up(self, connection: AsyncConnection) -> None:
        doubtful = await self._doubtful(connection)
        state = (await connection.execute(_STATE)).one()
        if state == self._state and not doubtful and doubtful is not None:
            return
        stale = await self._forget(connection, doubtful)
        for start in range(0, len(stale), _AT_A_TIME):
            await self._audit(connection, stale[start : start + _AT_A_TIME])
        self._state = state

    def _all(self) -> Iterator[BrokenRule]:
        for audited in self._groups.values():
            yield from audited.broken

    async def _doubtful(self, connection: AsyncConnection) -> Collection[int] | None:
        """The hosts that changed since the last look; None if all may have."""
        generation, self._generation = self._generation, self.live.generation
        if generation == self.live.generation:
            return ()
        query = sa.select(fleet_changes.c.generation, fleet_changes.c.host_ids).where(
            fleet_changes.c.generation > generation, fleet_changes.c.generation <= self.live.generation
        )
        rows = (await connection.execute(query)).all()
        if generation < 0 or len(rows) != self.live.generation - generation:
            return None
        return {host_id for row in rows for host_id in row.host_ids}

    async def _forget(self, connection: AsyncConnection, doubtful: Collection[int] | None) -> Sequence[sa.Row[Any]]:
        """Drop the audits that no longer hold; the groups that have none now."""
        columns = [server_groups.c[name] for name in ("id", "name", "project_id", "version")]
        rows = (await connection.execute(sa.select(*columns))).all()
        current = {row.id: row for row in rows}
        moved = None if doubtful is None else set(doubtful)
        for group_id, audited in list(self._groups.items()):
            row = current.get(group_id)
            same = row is not None and (row.version, row.name) == (audited.version, audited.name)
            held = moved is not None and not (moved and (audited.skewed or not audited.hosts.isdisjoint(moved)))
            if not (same and held):
                del self._groups[group_id]
        return [row for row in rows if row.id not in self._groups]

    async def _audit(self, connection: AsyncConnection, rows: Collection[sa.Row[Any]]) -> None:
        ids = [row.id for row in rows]
        rules = await groups.rules_of(connection, ids)
        places: dict[str, dict[str, int]] = {group_id: {} for group_id in ids}
        partitions: dict[str, int | None] = {}
        columns = (servers.c.group_id, servers.c.id, servers.c.host_id, servers.c.partition)
        query = sa.select(*columns).where(
            servers.c.group_id == sa.any_(sa.cast(ids, ARRAY(UUID(as_uuid=False)))), servers.c.host_id.is_not(None)
        )
        for group_id, server_id, host_id, partition in await connection.execute(query):
            places[group_id][server_id] = host_id
            partitions[server_id] = partition
        for number, row in enumerate(rows):
            if number % _BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)  # Others are served in between.
            self._groups[row.id] = self._audited(row, rules[row.id], places[row.id], partitions)

    def _audited(
        self, row: sa.Row[Any], rules: tuple[Rule, ...], places: dict[str, int], partitions: Mapping[str, int | None]
    ) -> _Audited:
        indexes = {server: self.live.index(host_id) for server, host_id in places.items()}
        placed = {server: index for server, index in indexes.items() if index is not None}
        broken = tuple(
            BrokenRule(row.id, row.name, row.project_id, found, {member: places[member] for member in found.members})
            for found in audit(self.live.fleet, rules, placed, partitions).violations
        )
        skewed = any(rule.max_skew is not None for rule in rules)
        return _Audited(row.version, row.name, frozenset(places.values()), skewed, broken)
