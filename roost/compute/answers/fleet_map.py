"""The map: zones, the aggregates of one scope in them, and the hosts of those that are opened.

The operator sees all hosts; a project sees its own servers, in aggregates and on hosts that are named as its scopes
allow. What is closed is counted by the database, so a map of many hosts is as long as it has aggregates.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.answers.violations import BrokenRule
from roost.compute.groups.identifiers import Identifiers
from roost.compute.inventory.hosts import DEFAULT_ZONE
from roost.compute.inventory.live_fleet import LiveFleet
from roost.compute.inventory.scopes import Scope
from roost.errors import Invalid
from roost.placement.rules import AVAILABILITY_ZONE, HOST
from roost.store.tables.compute import aggregate_hosts, aggregates, hosts
from roost.store.tables.servers import server_groups, servers
from roost.store.uuids import is_uuid

OUTSIDE = "none"
"""Stands for the hosts that are in no aggregate of the scope."""

_MOST_OPEN = 2000
_MOST_OWN = 10_000


@dataclass(slots=True)
class MapServer:
    """A mark on the map."""

    id: str
    name: str
    group_id: str | None
    status: str
    project_id: str
    broken: bool


@dataclass(slots=True)
class MapHost:
    """A host, or what a project may know of one: that servers share it."""

    name: str
    enabled: bool = True
    vcpus: tuple[int, int] | None = None
    """Used, and in all; None where the viewer may not know."""
    memory_mb: tuple[int, int] | None = None
    reason: str | None = None
    servers: list[MapServer] = field(default_factory=list)


@dataclass(slots=True)
class MapAggregate:
    """A tile. A project does not see what else is in it."""

    id: str
    name: str | None
    zone: str
    servers: int = 0
    hosts: int | None = None
    disabled: int | None = None
    load: float | None = None
    violations: int = 0
    members: int | None = None
    """How many are of the group asked about."""
    opened: list[MapHost] | None = None


@dataclass(slots=True)
class FleetMap:
    """What is drawn."""

    aggregates: list[MapAggregate]
    groups: dict[str, tuple[str, str]]
    """The name and the project of each group that a shown server is in."""
    violating: dict[tuple[str, str], int]
    """By zone and aggregate, how many broken rules involve members inside: of all aggregates, shown or not."""


def _literal(constant: str) -> sa.ColumnElement[str]:
    """Written out, so that an expression is the same wherever a query repeats it."""
    return sa.literal_column(f"'{constant}'")


@dataclass(frozen=True, slots=True)
class MapDivision:
    """One scope, as columns of a query over hosts."""

    scope: Scope

    @property
    def source(self) -> sa.FromClause:
        """Hosts, each with its aggregate in the scope."""
        if self.scope.name == AVAILABILITY_ZONE:
            return hosts
        inside = sa.and_(aggregate_hosts.c.host_id == hosts.c.id, aggregate_hosts.c.scope_id == self.scope.id)
        return hosts.outerjoin(aggregate_hosts, inside).outerjoin(
            aggregates, aggregates.c.id == aggregate_hosts.c.aggregate_id
        )

    @property
    def zone(self) -> sa.ColumnElement[str]:
        """The zone of a host."""
        return sa.func.coalesce(sa.func.nullif(hosts.c.availability_zone, _literal("")), _literal(DEFAULT_ZONE))

    @property
    def id(self) -> sa.ColumnElement[str]:
        """The aggregate's real identifier."""
        if self.scope.name == AVAILABILITY_ZONE:
            return self.zone
        return sa.func.coalesce(sa.cast(aggregates.c.id, sa.Text), _literal(OUTSIDE))

    @property
    def name(self) -> sa.ColumnElement[Any]:
        """The name that the deployer gave it."""
        return self.zone if self.scope.name == AVAILABILITY_ZONE else aggregates.c.name

    def among(self, ids: Collection[str]) -> sa.ColumnElement[bool]:
        """Whether a host is in one of these aggregates; by the index, where they are all aggregates of the deployer."""
        if self.scope.name == AVAILABILITY_ZONE or OUTSIDE in ids:
            return self.id.in_(ids)
        return aggregate_hosts.c.aggregate_id.in_([int(each) for each in ids if each.isascii() and each.isdigit()])

    def order(self) -> tuple[sa.ColumnElement[Any], ...]:
        """Zones by name, aggregates in the order in which they were made."""
        first = self.zone if self.scope.name == AVAILABILITY_ZONE else aggregates.c.id
        return self.zone, first


def divides(scope: Scope) -> bool:
    """Whether a map can be drawn by this scope: single hosts are inside the aggregates of all others."""
    return scope.name != HOST


async def of_all(
    connection: AsyncConnection,
    live: LiveFleet,
    scope: Scope,
    broken: Iterable[BrokenRule],
    *,
    only: Collection[str] | None = None,
    opened: Collection[str] | None = (),
    group_id: str | None = None,
    members: bool = False,
) -> FleetMap:
    """Every host: counted, or one by one in aggregates that are `opened` (None: all); `only` some, if asked, and those
    with `members` of the group."""
    division, broken = MapDivision(scope), list(broken)
    counted = await _members(connection, division, group_id)
    if members:
        only = {*(only or ()), *(aggregate for _, aggregate in counted)}
    query = _counts(division)
    if only is not None:
        query = query.where(division.among(only))
    counts = [_Counts(*row) for row in await connection.execute(query)]
    found = {(each.zone, each.id): _counted(each) for each in counts}
    violating = _breaches(live, scope, broken)
    for key, tile in found.items():
        tile.violations = violating[key]
    if group_id is not None:
        for key, tile in found.items():
            tile.members = counted.get(key, 0)
    wanted = [each for each in found.values() if opened is None or each.id in opened]
    if sum(each.hosts or 0 for each in wanted) > _MOST_OPEN:
        raise Invalid(f"At most {_MOST_OPEN} hosts are shown one by one; open fewer aggregates.")
    groups = await _open(connection, division, found, {each.id for each in wanted}, broken)
    return FleetMap(list(found.values()), groups, dict(violating))


class _Counts(NamedTuple):
    zone: str
    id: str
    name: str
    hosts: int
    disabled: int
    servers: int
    vcpus_used: int
    vcpus: int
    memory_mb_used: int
    memory_mb: int


def _counts(division: MapDivision) -> sa.Select[Any]:
    down = sa.or_(~hosts.c.enabled, hosts.c.forced_down)
    columns: list[sa.ColumnElement[Any]] = [
        division.zone,
        division.id,
        sa.func.min(division.name),
        sa.func.count(),
        sa.func.count().filter(down),
        *(sa.func.sum(hosts.c[name]) for name in _Counts._fields[5:]),
    ]
    query = sa.select(*columns).select_from(division.source)
    return query.group_by(division.zone, division.id, *division.order()).order_by(*division.order())


def _counted(each: _Counts) -> MapAggregate:
    load = max(_share(each.vcpus_used, each.vcpus), _share(each.memory_mb_used, each.memory_mb))
    servers, load = int(each.servers), round(load, 4)
    return MapAggregate(each.id, each.name, each.zone, servers, hosts=each.hosts, disabled=each.disabled, load=load)


def _share(used: int, total: int) -> float:
    return float(used) / float(total) if total else 0.0


def _breaches(live: LiveFleet, scope: Scope, broken: Iterable[BrokenRule]) -> Counter[tuple[str, str]]:
    """How many broken rules involve members inside each aggregate."""
    found: Counter[tuple[str, str]] = Counter()
    for each in broken:
        touched = set()
        for host_id in set(each.places.values()):
            index = live.index(host_id)
            if index is not None:
                places = live.places(index)
                touched.add((places[AVAILABILITY_ZONE], places.get(scope.name, OUTSIDE)))
        found.update(touched)
    return found


async def _members(
    connection: AsyncConnection, division: MapDivision, group_id: str | None
) -> dict[tuple[str, str], int]:
    """How many members of a group there are, by zone and aggregate."""
    if group_id is None or not is_uuid(group_id):
        return {}
    query = (
        sa.select(division.zone.label("zone"), division.id.label("id"), sa.func.count().label("members"))
        .select_from(division.source.join(servers, servers.c.host_id == hosts.c.id))
        .where(servers.c.group_id == group_id)
        .group_by(division.zone, division.id)
    )
    return {(row.zone, row.id): row.members for row in await connection.execute(query)}


async def _open(
    connection: AsyncConnection,
    division: MapDivision,
    found: Mapping[tuple[str, str], MapAggregate],
    wanted: Collection[str],
    broken: Iterable[BrokenRule],
) -> dict[str, tuple[str, str]]:
    """Fill in the hosts of these aggregates, and their servers; the groups that those are in."""
    if not wanted:
        return {}
    columns = (
        *(hosts.c[name] for name in ("id", "name", "enabled", "forced_down", "disabled_reason", "vcpus", "vcpus_used")),
        *(hosts.c[name] for name in ("memory_mb", "memory_mb_used")),
    )
    query = sa.select(*columns, division.zone.label("zone"), division.id.label("aggregate"))
    query = query.select_from(division.source).where(division.among(wanted)).order_by(hosts.c.id)
    by_id: dict[int, MapHost] = {}
    for row in await connection.execute(query):
        tile = found[row.zone, row.aggregate]
        host = by_id[row.id] = MapHost(
            row.name,
            row.enabled and not row.forced_down,
            (row.vcpus_used, row.vcpus),
            (row.memory_mb_used, row.memory_mb),
            row.disabled_reason or ("The host is down." if row.forced_down else None),
        )
        if tile.opened is None:
            tile.opened = []
        tile.opened.append(host)
    groups: dict[str, tuple[str, str]] = {}
    wrong = _wrong(broken)
    inside = sa.any_(sa.literal(list(by_id), ARRAY(servers.c.host_id.type)))
    for row in await connection.execute(_marks().where(servers.c.host_id == inside)):
        server = _ShownServer(*row)
        by_id[server.host_id].servers.append(_mark(server, wrong, groups))
    return groups


class _ShownServer(NamedTuple):
    id: str
    name: str
    host_id: int
    group_id: str | None
    project_id: str
    vm_state: str
    task_state: str | None
    group_name: str
    group_project: str
    # Only on the map of a project:
    zone: str = ""
    aggregate: str = ""
    aggregate_name: str | None = None
    host: str = ""


def _marks() -> sa.Select[Any]:
    own = (servers.c[name] for name in _ShownServer._fields[:7])
    return (
        sa.select(*own, server_groups.c.name, server_groups.c.project_id)
        .outerjoin(server_groups, server_groups.c.id == servers.c.group_id)
        .order_by(servers.c.number)
    )


def _mark(server: _ShownServer, wrong: Collection[str], groups: dict[str, tuple[str, str]]) -> MapServer:
    if server.group_id is not None:
        groups[server.group_id] = (server.group_name, server.group_project)
    status, broken = server.task_state or server.vm_state, server.id in wrong
    return MapServer(server.id, server.name, server.group_id, status, server.project_id, broken)


def _wrong(broken: Iterable[BrokenRule]) -> set[str]:
    return {member for each in broken for member in each.places}


# A project's own


async def of_project(
    connection: AsyncConnection,
    scope: Scope,
    identifiers: Identifiers,
    project_id: str,
    broken: Iterable[BrokenRule],
    *,
    group_id: str | None = None,
) -> FleetMap:
    """The servers of a project, in aggregates by the names that the reader knows, on hosts named to operators only."""
    division, broken = MapDivision(scope), [each for each in broken if each.project_id == project_id]
    query = (
        _marks()
        .add_columns(division.zone, division.id, division.name, hosts.c.name)
        .select_from(division.source.join(servers, servers.c.host_id == hosts.c.id))
        .where(servers.c.project_id == project_id)
        .limit(_MOST_OWN)
    )
    groups: dict[str, tuple[str, str]] = {}
    found: dict[tuple[str, str], MapAggregate] = {}
    on_host: dict[tuple[str, str], dict[str, MapHost]] = defaultdict(dict)
    wrong = _wrong(broken)
    for row in await connection.execute(query):
        server = _ShownServer(*row)
        key = (server.zone, server.aggregate)
        tile = found.get(key)
        if tile is None:
            shown, name = _named(scope, identifiers, server.aggregate, server.aggregate_name)
            tile = found[key] = MapAggregate(shown, name, server.zone, members=None if group_id is None else 0)
        host_name = server.host if identifiers.real else _veiled(project_id, server.host)
        host = on_host[key].setdefault(server.host, MapHost(host_name))
        host.servers.append(_mark(server, wrong, groups))
        tile.servers += 1
        if group_id is not None and server.group_id == group_id:
            tile.members = (tile.members or 0) + 1
    for key, tile in found.items():
        tile.opened = list(on_host[key].values())
        inside = {each.id for host in tile.opened for each in host.servers}
        tile.violations = sum(not inside.isdisjoint(each.places) for each in broken)
    tiles = sorted(found.values(), key=lambda tile: (tile.zone, (tile.opened or [])[0].servers[0].id))
    violating = {(tile.zone, tile.id): tile.violations for tile in tiles if tile.violations}
    return FleetMap(tiles, groups, violating)


def _named(scope: Scope, identifiers: Identifiers, identifier: str, name: str | None) -> tuple[str, str | None]:
    if identifier == OUTSIDE:
        return OUTSIDE, None
    shown = identifiers.of(scope.name, identifier)
    return shown, name if shown == identifier else None


def _veiled(project_id: str, host: str) -> str:
    """As the `hostId` of a server: it tells whether two of a project's servers share a host, and nothing more."""
    return hashlib.sha224((project_id + host).encode()).hexdigest()


async def aggregates_of(connection: AsyncConnection, scope: Scope, host_ids: Collection[int]) -> list[str]:
    """The aggregates that these hosts are in now, by their real identifiers."""
    division = MapDivision(scope)
    query = sa.select(division.id).select_from(division.source).where(hosts.c.id.in_(host_ids)).distinct()
    return sorted(await connection.scalars(query))


async def has_servers_on(connection: AsyncConnection, project_id: str, host_ids: Collection[int]) -> bool:
    """Whether a project has servers on any of these hosts."""
    query = sa.select(servers.c.id).where(servers.c.project_id == project_id, servers.c.host_id.in_(host_ids)).limit(1)
    return (await connection.execute(query)).one_or_none() is not None
