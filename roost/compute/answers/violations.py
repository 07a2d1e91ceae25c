"""Which rules are broken: in one group, or in all, where only the groups that changed are looked at again.

Rules bind when scheduling only. A member added by hand, a changed policy or a host moved to another rack may break
them.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, UUID
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import groups
from roost.compute.groups.groups import Group
from roost.compute.groups.identifiers import Identifiers
from roost.compute.inventory.live_fleet import LiveFleet
from roost.placement.audit import Audit, Violation, audit
from roost.placement.fleet import Fleet
from roost.placement.rules import Rule
from roost.store.tables.compute import fleet_changes
from roost.store.tables.servers import server_groups, servers

_AT_A_TIME = 1000
_BETWEEN_PAUSES = 20

# Numbers are never reused and versions only rise, so where these are the same no group was added, removed or changed.
_STATE = sa.select(
    sa.func.count(), sa.func.max(server_groups.c.number), sa.func.sum(server_groups.c.version)
).select_from(server_groups)


class ViolationKey(NamedTuple):
    """What makes a violation the same one when it is looked for again."""

    group_id: str
    breach: str
    policy: str
    aggregate: str


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that members of a group break, with the real name of the aggregate where that is, and the hosts that the
    members are on."""

    group_id: str
    group_name: str
    project_id: str
    violation: Violation
    aggregate: str | None
    places: Mapping[str, int]

    @property
    def key(self) -> ViolationKey:
        """What it is known by."""
        found = self.violation
        return ViolationKey(self.group_id, str(found.breach), str(found.rule), self.aggregate or "")

    def shown(self, identifiers: Identifiers) -> "BrokenRule":
        """With the identifiers that the reader may see."""
        rule = identifiers.shown(self.violation.rule)
        aggregate = rule.identifier
        if aggregate is None and self.aggregate is not None:
            aggregate = identifiers.of(rule.scope, self.aggregate)
        return replace(self, violation=replace(self.violation, rule=rule), aggregate=aggregate)


class _Names(dict[str, list[str]]):
    """The names of the aggregates of each scope, read when they are first needed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def __missing__(self, scope: str) -> list[str]:
        return self.setdefault(scope, self._fleet.identifiers(scope))


def aggregate_name(names: Sequence[str], violation: Violation) -> str | None:
    """The real name, among all of its scope, of the aggregate where a rule is broken; None for no aggregate at all."""
    if violation.aggregate is None:
        return None
    # A target that no host was ever in has only the name that the rule has for it.
    return names[violation.aggregate] if 0 <= violation.aggregate < len(names) else violation.rule.identifier


@dataclass(frozen=True, slots=True)
class AuditedGroup:
    """One group as it is: the host of each member (None: on none) and its partition, the placements, what is broken."""

    hosts: Mapping[str, int | None]
    partitions: Mapping[str, int | None]
    rules: tuple[Rule, ...]
    fleet: Fleet
    audit: Audit
    broken: tuple[BrokenRule, ...]


async def of_group(connection: AsyncConnection, group: Group, fleet: LiveFleet) -> AuditedGroup:
    """Audit one group, on no more of the fleet than its rules need; all of it is what this process has in memory."""
    rules = (await groups.rules_of(connection, [group.id]))[group.id]
    query = sa.select(servers.c.id, servers.c.host_id, servers.c.partition).where(servers.c.group_id == group.id)
    rows = (await connection.execute(query.order_by(servers.c.number))).all()
    host_ids, partitions = {row.id: row.host_id for row in rows}, {row.id: row.partition for row in rows}
    places = {member: host_id for member, host_id in host_ids.items() if host_id is not None}
    if any(rule.max_skew is not None for rule in rules):
        live = fleet
        await live.sync(connection)
    else:
        live = LiveFleet()
        await live.refresh(connection, set(places.values()))
    found = audit(live.fleet, rules, _placed(live, places), partitions)
    current = _CurrentGroup(group.id, group.name, group.project_id, 0)
    broken = tuple(_broken(_Names(live.fleet), current, found, places))
    return AuditedGroup(host_ids, partitions, rules, live.fleet, found, broken)


def _placed(live: LiveFleet, places: Mapping[str, int]) -> dict[str, int]:
    """The members that are on a host of the fleet; one that failed or is shelved breaks nothing."""
    indexes = {member: live.index(host_id) for member, host_id in places.items()}
    return {member: index for member, index in indexes.items() if index is not None}


def _broken(names: _Names, group: "_CurrentGroup", found: Audit, places: Mapping[str, int]) -> Iterator[BrokenRule]:
    for each in found.violations:
        members = {member: places[member] for member in each.members}
        aggregate = aggregate_name(names[each.rule.scope], each)
        yield BrokenRule(group.id, group.name, group.project_id, each, aggregate, members)


# All groups


class _CurrentGroup(NamedTuple):
    id: str
    name: str
    project_id: str
    version: int
    number: int = 0


class _GroupsState(NamedTuple):
    number: int
    newest: int | None
    versions: int | None


@dataclass(frozen=True, slots=True)
class _AuditedBefore:
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
    tell: Callable[[str], None] = lambda _: None
    """Called with how many groups have been audited."""
    _groups: dict[str, _AuditedBefore] = field(default_factory=dict)
    _generation: int = -1
    _state: _GroupsState | None = None
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
        unmoved = doubtful is not None and not doubtful
        if unmoved and _GroupsState(*(await connection.execute(_STATE)).one()) == self._state:
            return
        query = sa.select(*(server_groups.c[name] for name in _CurrentGroup._fields))
        rows = [_CurrentGroup(*row) for row in await connection.execute(query.order_by(server_groups.c.number))]
        stale = self._forget(rows, doubtful)
        for start in range(0, len(stale), _AT_A_TIME):
            self.tell(f"{start:,} of {len(stale):,} groups")
            await self._audit(connection, stale[start : start + _AT_A_TIME])
        newest, versions = (rows[-1].number, sum(row.version for row in rows)) if rows else (None, None)
        self._state = _GroupsState(len(rows), newest, versions)

    def _all(self) -> Iterator[BrokenRule]:
        for audited in self._groups.values():
            yield from audited.broken

    async def _doubtful(self, connection: AsyncConnection) -> Collection[int] | None:
        """The hosts that changed since the last look; None if all may have."""
        generation, self._generation = self._generation, self.live.generation
        if generation < 0:
            return None
        if generation == self.live.generation:
            return ()
        query = sa.select(fleet_changes.c.generation, fleet_changes.c.host_ids).where(
            fleet_changes.c.generation > generation, fleet_changes.c.generation <= self.live.generation
        )
        rows = (await connection.execute(query)).all()
        if len(rows) != self.live.generation - generation:
            return None
        return {host_id for row in rows for host_id in row.host_ids}

    def _forget(self, rows: Sequence[_CurrentGroup], doubtful: Collection[int] | None) -> Sequence[_CurrentGroup]:
        """Drop the audits that no longer hold; the groups that have none now."""
        current = {row.id: row for row in rows}
        moved = None if doubtful is None else set(doubtful)
        for group_id, audited in list(self._groups.items()):
            row = current.get(group_id)
            same = row is not None and (row.version, row.name) == (audited.version, audited.name)
            held = moved is not None and not (moved and (audited.skewed or not audited.hosts.isdisjoint(moved)))
            if not (same and held):
                del self._groups[group_id]
        return [row for row in rows if row.id not in self._groups]

    async def _audit(self, connection: AsyncConnection, rows: Collection[_CurrentGroup]) -> None:
        ids = [row.id for row in rows]
        rules = await groups.rules_of(connection, ids)
        places: dict[str, dict[str, int]] = {group_id: {} for group_id in ids}
        partitions: dict[str, int | None] = {}
        columns = (servers.c.group_id, servers.c.id, servers.c.host_id, servers.c.partition)
        query = sa.select(*columns).where(
            servers.c.group_id == sa.any_(sa.cast(ids, ARRAY(UUID(as_uuid=False)))), servers.c.host_id.is_not(None)
        )
        for group_id, server_id, host_id, partition in await connection.execute(query.order_by(servers.c.number)):
            places[group_id][server_id] = host_id
            partitions[server_id] = partition
        for number, row in enumerate(rows):
            if number % _BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)  # Others are served in between, and may change the fleet.
                names = _Names(self.live.fleet)
            self._groups[row.id] = self._audited(row, rules[row.id], places[row.id], partitions, names)

    def _audited(
        self,
        row: _CurrentGroup,
        rules: tuple[Rule, ...],
        places: dict[str, int],
        partitions: Mapping[str, int | None],
        names: _Names,
    ) -> _AuditedBefore:
        found = audit(self.live.fleet, rules, _placed(self.live, places), partitions)
        skewed = any(rule.max_skew is not None for rule in rules)
        broken = tuple(_broken(names, row, found, places))
        return _AuditedBefore(row.version, row.name, frozenset(places.values()), skewed, broken)
