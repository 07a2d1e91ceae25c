"""Lists and search for people: every kind of thing with its columns, filters and order, in one table.

Each kind says which columns it has, which of them only operators see, and which project a row belongs to. Lists, search
and exports all read from here.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Invalid
from roost.store import pages, words
from roost.store.natural import natural
from roost.store.pages import PageRequest, SortKey, UnknownMarker
from roost.store.tables.clusters import actions, clusters, nodes
from roost.store.tables.compute import aggregate_hosts, aggregates, hosts, scopes
from roost.store.tables.identity import projects
from roost.store.tables.servers import project_usage, server_groups, servers
from roost.store.uuids import is_uuid

Column = sa.ColumnElement[Any]

_RANKED = 200
"""How many of the rows that each way finds are ranked."""


@dataclass(frozen=True, slots=True)
class ListWalk:
    """Sorting by a column of what rows belong to: the few parents that a page needs are read in order, then their rows.

    Rows without a parent are read apart: they come first, or last in descending order.
    """

    parent: sa.Table
    link: Column
    keys: tuple[Column, ...]
    private: tuple[Column, ...] = ()
    """What else to sort by for operators: others must not be able to infer it from the order."""


@dataclass(frozen=True, slots=True)
class ListValues:
    """Sorting by a column of few values, in the order of what is shown for them: the values are read first, and then
    the rows of each until the page is full."""

    column: Column
    shown: Callable[[Column], Column]
    """What a value is shown as."""
    then: Column
    """What the rows of one value are sorted by, because an index has it after the column."""


@dataclass(frozen=True, slots=True)
class ListCount:
    """How many rows of another table belong to each row."""

    link: Column
    row: Column
    condition: sa.ColumnElement[bool] = field(default_factory=sa.true)

    @property
    def each(self) -> Column:
        """The count of one row, for the few on a page."""
        return sa.select(sa.func.count()).where(self.link == self.row, self.condition).scalar_subquery()

    def sorting(self, source: sa.FromClause) -> tuple[sa.FromClause, Column]:
        """What to sort all rows by: counted together, not row by row."""
        counted = sa.select(self.link.label("row"), sa.func.count().label("number")).where(self.condition)
        totals = counted.group_by(self.link).subquery()
        return source.outerjoin(totals, totals.c.row == self.row), sa.func.coalesce(totals.c.number, 0)


@dataclass(frozen=True, slots=True)
class ListKind:
    """One kind of thing that can be listed."""

    table: sa.Table
    source: sa.FromClause
    columns: Mapping[str, Column]
    filters: Mapping[str, Column]
    """What each filter compares: a column as an index has it, where there is one."""
    walks: Mapping[str, "ListWalk"] = field(default_factory=dict)
    """Columns that are sorted by way of another table."""
    values: Mapping[str, "ListValues"] = field(default_factory=dict)
    """Columns of few values."""
    sorted_by: Mapping[str, Column] = field(default_factory=dict)
    """What a column is sorted by instead: numbers in names by their size, and what an index has."""
    counts: Mapping[str, "ListCount"] = field(default_factory=dict)
    """Columns that count rows of another table."""
    words: str | None = None
    """What it is searched by, if an index has its words; else by the beginning of its name or id."""
    owner: Column | None = None
    """The project that a row belongs to; without one, only operators see the list."""
    private: frozenset[str] = frozenset()
    """Columns that only operators see."""
    state: str = "status"
    states: frozenset[str] = frozenset()
    """States that are found by their names, as the filter `state` has them."""

    @property
    def id(self) -> sa.Column[Any]:
        """What a marker names."""
        return self.table.c.id

    def shown(self, operator: bool) -> dict[str, Column]:
        """The columns that the caller sees."""
        return {name: each for name, each in self.columns.items() if operator or name not in self.private}

    def matching(self, query: str, owners: Sequence[str]) -> list[sa.ColumnElement[bool]]:
        """The ways in which a search finds rows, each with its own index: by their words, by the name of their state,
        and by the projects of that name."""
        wanted = query.lower().strip()
        ways = [self._worded(query)]
        ways += [_equals("state", self.filters[self.state], each) for each in self.states if each.lower() == wanted]
        return [*ways, self.owner.in_(owners)] if self.owner is not None and owners else ways

    def apart(self, query: str, owners: Sequence[str]) -> list[sa.ColumnElement[bool]]:
        """The same ways, each row in one of them alone. Words come last: they cost the most to test."""
        words, *others = self.matching(query, owners)
        ways = [*others, words]
        return [sa.and_(way, *(sa.not_(other) for other in ways[:place])) for place, way in enumerate(ways)]

    def _worded(self, query: str) -> sa.ColumnElement[bool]:
        if self.words is None:
            begin = query.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
            text = (sa.func.lower(self.table.c.name), sa.cast(self.id, sa.Text))
            inside = sa.func.lower(self.table.c.name).like(f"%{begin}")
            return sa.or_(inside, *(each.like(begin) for each in text))
        return words.matching(self.words, self.table.name, query)


_STATUS = {"building": "BUILD", "stopped": "SHUTOFF", "resized": "VERIFY_RESIZE", "rescued": "RESCUE"}
"""As clients see it, where it is not the state itself."""
_CLUSTER_STATES = frozenset({"ACTIVE", "CRITICAL", "ERROR", "WARNING", "CREATING", "DELETING", "RECOVERING"})
_HOST_STATE = sa.case((hosts.c.forced_down, "down"), (sa.not_(hosts.c.enabled), "disabled"), else_="up")


def _status(state: Column) -> Column:
    """The status of a server in a state."""
    return sa.case(_STATUS, value=state, else_=sa.func.upper(state))


_SERVER_STATUS = _status(servers.c.vm_state)


def _project(project_id: Column) -> Column:
    """The name of a project; its id where another service knows the names."""
    name = sa.select(projects.c.name).where(projects.c.id == project_id)
    return sa.func.coalesce(name.scalar_subquery(), project_id)


def _with_project(source: sa.FromClause, table: sa.Table) -> sa.FromClause:
    return source.outerjoin(projects, projects.c.id == table.c.project_id)


def _owned(table: sa.Table) -> dict[str, Column]:
    return {"project": sa.func.coalesce(projects.c.name, table.c.project_id), "project_id": table.c.project_id}


def _by_owner(table: sa.Table) -> dict[str, Column]:
    return {"project_id": table.c.project_id, "project": table.c.project_id}


_used = sa.func.greatest(
    sa.cast(hosts.c.vcpus_used, sa.Float) / sa.func.nullif(hosts.c.vcpus, 0),
    sa.cast(hosts.c.memory_mb_used, sa.Float) / sa.func.nullif(hosts.c.memory_mb, 0),
)
_members = ListCount(servers.c.group_id, server_groups.c.id)
_failed = ListCount(servers.c.group_id, server_groups.c.id, servers.c.vm_state == sa.literal_column("'error'"))
_hosts = ListCount(aggregate_hosts.c.aggregate_id, aggregates.c.id)
_aggregates = ListCount(aggregates.c.scope_id, scopes.c.id)
_nodes = ListCount(nodes.c.cluster_id, clusters.c.id)

KINDS: Mapping[str, ListKind] = {
    "servers": ListKind(
        servers,
        _with_project(servers, servers)
        .outerjoin(hosts, hosts.c.id == servers.c.host_id)
        .outerjoin(server_groups, server_groups.c.id == servers.c.group_id),
        {
            "id": servers.c.id,
            "name": servers.c.name,
            "status": _SERVER_STATUS,
            "task": sa.func.coalesce(servers.c.task_state, ""),
            "zone": sa.func.coalesce(hosts.c.availability_zone, ""),
            "host": sa.func.coalesce(hosts.c.name, ""),
            "flavor": sa.func.coalesce(servers.c.flavor["name"].astext, ""),
            "group": sa.func.coalesce(server_groups.c.name, ""),
            "group_id": sa.func.coalesce(sa.cast(servers.c.group_id, sa.Text), ""),
            **_owned(servers),
            "created_at": servers.c.created_at,
            "fault": sa.func.coalesce(servers.c.fault["message"].astext, ""),
        },
        {
            "id": servers.c.id,
            "status": _SERVER_STATUS,
            "zone": hosts.c.availability_zone,
            "host": hosts.c.name,
            "flavor": servers.c.flavor["name"].astext,
            "group_id": servers.c.group_id,
            **_by_owner(servers),
        },
        {
            "host": ListWalk(hosts, servers.c.host_id, (natural(hosts.c.name),)),
            "zone": ListWalk(hosts, servers.c.host_id, (natural(hosts.c.availability_zone),), (natural(hosts.c.name),)),
            "group": ListWalk(server_groups, servers.c.group_id, (natural(server_groups.c.name),)),
        },
        values={
            "status": ListValues(servers.c.vm_state, _status, servers.c.id),
            "project": ListValues(servers.c.project_id, _project, servers.c.number),
        },
        sorted_by={
            "name": natural(servers.c.name),
            "flavor": servers.c.flavor["name"].astext,
            "created_at": servers.c.number,  # They are numbered as they are created.
        },
        words=words.SERVERS,
        owner=servers.c.project_id,
        private=frozenset({"host"}),
        states=frozenset(
            {"ACTIVE", "BUILD", "ERROR", "PAUSED", "RESCUE", "SHELVED", "SHUTOFF", "SUSPENDED", "VERIFY_RESIZE"}
        ),
    ),
    "groups": ListKind(
        server_groups,
        _with_project(server_groups, server_groups),
        {
            "id": server_groups.c.id,
            "name": server_groups.c.name,
            "members": _members.each,
            "failed": _failed.each,
            **_owned(server_groups),
            "created_at": server_groups.c.created_at,
        },
        _by_owner(server_groups),
        sorted_by={"name": natural(server_groups.c.name)},
        counts={"members": _members, "failed": _failed},
        words=words.GROUPS,
        owner=server_groups.c.project_id,
    ),
    "hosts": ListKind(
        hosts,
        hosts,
        {
            "id": hosts.c.id,
            "name": hosts.c.name,
            "state": _HOST_STATE,
            "zone": hosts.c.availability_zone,
            "address": hosts.c.address,
            "servers": hosts.c.servers,
            "vcpus": hosts.c.vcpus,
            "vcpus_used": hosts.c.vcpus_used,
            "memory_mb": hosts.c.memory_mb,
            "memory_mb_used": hosts.c.memory_mb_used,
            "load": sa.func.coalesce(_used, 0.0),
            "reason": sa.func.coalesce(hosts.c.disabled_reason, ""),
        },
        {"name": hosts.c.name, "state": _HOST_STATE, "zone": hosts.c.availability_zone},
        sorted_by={"name": natural(hosts.c.name), "zone": natural(hosts.c.availability_zone)},
        words=words.HOSTS,
        state="state",
        states=frozenset({"up", "disabled", "down"}),
    ),
    "aggregates": ListKind(
        aggregates,
        aggregates.outerjoin(scopes, scopes.c.id == aggregates.c.scope_id),
        {
            "id": aggregates.c.id,
            "name": aggregates.c.name,
            "scope": sa.func.coalesce(scopes.c.name, ""),
            "zone": aggregates.c.availability_zone,
            "hosts": _hosts.each,
        },
        {"id": aggregates.c.id, "scope": scopes.c.name, "zone": aggregates.c.availability_zone},
        sorted_by={"name": natural(aggregates.c.name)},
        counts={"hosts": _hosts},
    ),
    "scopes": ListKind(
        scopes,
        scopes,
        {"id": scopes.c.id, "name": scopes.c.name, "aggregates": _aggregates.each},
        {"id": scopes.c.id},
        counts={"aggregates": _aggregates},
    ),
    "clusters": ListKind(
        clusters,
        _with_project(clusters, clusters),
        {
            "id": clusters.c.id,
            "name": clusters.c.name,
            "status": clusters.c.status,
            "nodes": _nodes.each,
            "desired": clusters.c.desired_capacity,
            **_owned(clusters),
            "reason": clusters.c.status_reason,
        },
        {"status": clusters.c.status, **_by_owner(clusters)},
        sorted_by={"name": natural(clusters.c.name)},
        counts={"nodes": _nodes},
        words=words.NAMED,
        owner=clusters.c.project_id,
        states=_CLUSTER_STATES,
    ),
    "nodes": ListKind(
        nodes,
        _with_project(nodes, nodes).outerjoin(clusters, clusters.c.id == nodes.c.cluster_id),
        {
            "id": nodes.c.id,
            "name": nodes.c.name,
            "status": nodes.c.status,
            "cluster": sa.func.coalesce(clusters.c.name, ""),
            "cluster_id": sa.func.coalesce(nodes.c.cluster_id, ""),
            "server_id": sa.func.coalesce(nodes.c.physical_id, ""),
            **_owned(nodes),
            "reason": nodes.c.status_reason,
        },
        {"status": nodes.c.status, "cluster_id": nodes.c.cluster_id, **_by_owner(nodes)},
        {"cluster": ListWalk(clusters, nodes.c.cluster_id, (natural(clusters.c.name),))},
        sorted_by={"name": natural(nodes.c.name)},
        words=words.NAMED,
        owner=nodes.c.project_id,
        states=_CLUSTER_STATES,
    ),
    "actions": ListKind(
        actions,
        _with_project(actions, actions),
        {
            "id": actions.c.id,
            "name": actions.c.name,
            "action": actions.c.action,
            "status": actions.c.status,
            "target": actions.c.target,
            "cluster_id": sa.func.coalesce(actions.c.cluster_id, ""),
            "started_at": actions.c.start_time,
            "reason": actions.c.status_reason,
            **_owned(actions),
        },
        {
            "status": actions.c.status,
            "action": actions.c.action,
            "target": actions.c.target,
            "cluster_id": actions.c.cluster_id,
            "project_id": actions.c.project_id,
        },
        owner=actions.c.project_id,
        states=frozenset({"RUNNING", "FAILED", "CANCELLED", "SUSPENDED"}),
    ),
    "projects": ListKind(
        projects,
        projects.outerjoin(project_usage, project_usage.c.project_id == projects.c.id),
        {
            "id": projects.c.id,
            "name": projects.c.name,
            "servers": sa.func.coalesce(project_usage.c.instances, 0),
            "cores": sa.func.coalesce(project_usage.c.cores, 0),
            "memory_mb": sa.func.coalesce(project_usage.c.ram, 0),
            "groups": sa.func.coalesce(project_usage.c.server_groups, 0),
        },
        {"id": projects.c.id},
        sorted_by={"name": natural(projects.c.name)},
    ),
}


@dataclass(frozen=True, slots=True)
class ListRequest:
    """What is to be listed, for whom, and how."""

    kind: ListKind
    project_id: str | None
    """The caller's project; None for an operator, who sees all."""
    filters: Mapping[str, str]
    query: str = ""
    sort: str = "name"
    descends: bool = False
    broken: Collection[str] | None = None
    """Only these groups."""


ListRow = dict[str, object]
"""What a list shows of one of its things, by the names of its columns."""

RowId = str | int
"""What a row of a list is known by."""


async def ids(connection: AsyncConnection, request: ListRequest, page: PageRequest) -> list[RowId]:
    """Which rows are on a page, in its order."""
    kind = request.kind
    columns = kind.shown(request.project_id is None)
    if request.sort not in columns:
        raise Invalid(f"'{request.sort}' is not a column to sort by; use one of {', '.join(columns)}.")
    conditions, ways = _conditions(request, columns), await _ways(connection, request)
    values = kind.values.get(request.sort)
    if values is not None and not ways:
        return await _valued(connection, request, values, page, conditions)
    return await _ids(connection, list(_orders(request, columns)), page, conditions, kind.id, ways)


async def rows_of(connection: AsyncConnection, request: ListRequest, ids: Sequence[RowId]) -> list[ListRow]:
    """All columns of those of these rows that still exist."""
    columns = request.kind.shown(request.project_id is None)
    rows = {row["id"]: row for row in await _rows(connection, request.kind, columns, ids)}
    return [rows[each] for each in ids if each in rows]


async def _valued(
    connection: AsyncConnection,
    request: ListRequest,
    values: ListValues,
    page: PageRequest,
    conditions: Sequence[sa.ColumnElement[bool]],
) -> list[RowId]:
    """Which rows are on a page that is sorted by a column of few values."""
    kind = request.kind
    # One step for each value: the smallest that is greater than the last, which an index finds.
    least = sa.func.min(values.column)
    found = sa.select(least.label("value")).cte(recursive=True)
    greater = sa.select(least).where(values.column > found.c.value).correlate(found).scalar_subquery()
    found = found.union_all(sa.select(greater).where(found.c.value.is_not(None)))
    shown = values.shown(found.c.value)
    query = sa.select(found.c.value).where(found.c.value.is_not(None)).order_by(shown, found.c.value)
    ordered = (await connection.scalars(query)).all()
    visible = sa.select(kind.id.label("id")).select_from(kind.source).where(*_visible(request))
    order = pages.ValueOrder(values.column, ordered[::-1] if request.descends else ordered, values.then)
    rows = await pages.read_by_value(connection, visible, order, page, *conditions, named=kind.id)
    return [row.id for row in rows]


async def _ids(
    connection: AsyncConnection,
    parts: Sequence[tuple[sa.Select[Any], list[SortKey]]],
    page: PageRequest,
    conditions: Sequence[sa.ColumnElement[bool]],
    named: sa.Column[Any],
    ways: Sequence[sa.ColumnElement[bool]],
) -> list[RowId]:
    """Which rows are on the page: from the part with the marker, and from those after it until the page is full."""
    ids: list[RowId] = []
    marker, limit = page.marker, page.limit or 0
    for place, (visible, keys) in enumerate(parts):
        if ids and len(ids) == limit:
            break
        rest = PageRequest(limit - len(ids), marker)
        try:
            rows = await pages.read(connection, visible, keys, rest, *conditions, named=named, ways=ways)
        except UnknownMarker:
            if place == len(parts) - 1:
                raise
            continue
        ids, marker = [*ids, *(row.id for row in rows)], None
    return ids


def _orders(request: ListRequest, columns: Mapping[str, Column]) -> Iterator[tuple[sa.Select[Any], list[SortKey]]]:
    """The parts of a list, one after another: what is visible of each, and what it is sorted by."""
    kind, source = request.kind, request.kind.source
    column = kind.sorted_by.get(request.sort, columns[request.sort])
    if request.sort in kind.counts:
        source, column = kind.counts[request.sort].sorting(source)
    visible = sa.select(kind.id.label("id")).select_from(source).where(*_visible(request))
    last = [SortKey(kind.id)]
    walk = kind.walks.get(request.sort)
    if walk is None:
        yield visible, [SortKey(column, request.descends), *([] if column is kind.id else last)]
        return
    keys = walk.keys + (walk.private if request.project_id is None else ())
    parts = [
        (visible.where(walk.link.is_(None)), last),
        (visible.where(walk.parent.c.id.is_not(None)), [*(SortKey(each, request.descends) for each in keys), *last]),
    ]
    yield from reversed(parts) if request.descends else parts


async def _rows(
    connection: AsyncConnection, kind: ListKind, columns: Mapping[str, Column], ids: Sequence[RowId]
) -> list[ListRow]:
    query = sa.select(*(each.label(name) for name, each in columns.items())).select_from(kind.source)
    rows = await connection.execute(query.where(kind.id == sa.any_(sa.literal(ids, ARRAY(kind.id.type)))))
    return [dict(row._mapping) for row in rows]


async def count(connection: AsyncConnection, request: ListRequest) -> int:
    """How many the whole list has."""
    kind = request.kind
    query = sa.select(sa.func.count()).select_from(kind.source)
    query = query.where(*_visible(request), *_conditions(request, kind.shown(request.project_id is None)))
    counts = [query.where(way) for way in await _ways(connection, request)] or [query]
    return sum([int(await connection.scalar(each) or 0) for each in counts])


async def _ways(connection: AsyncConnection, request: ListRequest) -> list[sa.ColumnElement[bool]]:
    """How the rows with the words of the query are found; none without words."""
    if not words.split(request.query):
        return []
    await words.use_index(connection)
    return request.kind.apart(request.query, await _projects_named(connection, request.query))


async def _projects_named(connection: AsyncConnection, query: str) -> Sequence[str]:
    named = sa.func.lower(projects.c.name) == query.lower().strip()
    return (await connection.scalars(sa.select(projects.c.id).where(named))).all()


def _visible(request: ListRequest) -> list[sa.ColumnElement[bool]]:
    owner = request.kind.owner
    conditions = [] if request.project_id is None or owner is None else [owner == request.project_id]
    return [*conditions, *([actions.c.parent_id.is_(None)] if request.kind.table is actions else [])]


def _conditions(request: ListRequest, columns: Mapping[str, Column]) -> list[sa.ColumnElement[bool]]:
    kind = request.kind
    found: list[sa.ColumnElement[bool]] = []
    for name, value in request.filters.items():
        if name not in kind.filters or name not in columns:
            raise Invalid(f"'{name}' is not a filter of this list; use one of {', '.join(sorted(kind.filters))}.")
        found.append(_equals(name, kind.filters[name], value))
    if request.broken is not None:
        found.append(kind.id.in_(list(request.broken)))
    return found


def _equals(name: str, column: Column, value: str) -> sa.ColumnElement[bool]:
    if name == "project":
        named = sa.select(projects.c.id).where(projects.c.name == value).correlate(None)
        return sa.or_(column == value, column == sa.any_(sa.func.array(named.scalar_subquery())))
    if isinstance(column.type, sa.Uuid):
        return column == value if is_uuid(value) else sa.false()
    if column is _SERVER_STATUS and value == "ERROR":
        return servers.c.vm_state == sa.literal_column("'error'")  # As the index has it.
    return sa.cast(column, sa.Text) == value


def _rank(name: str, query: str) -> int:
    """Which of the rows found are wanted most: by the whole name, its beginning, a part of it, or anything else."""
    name, wanted = name.lower(), query.lower().strip()
    return 0 if name == wanted else 1 if name.startswith(wanted) else 2 if wanted in name else 3


async def search(
    connection: AsyncConnection, query: str, project_id: str | None, limit: int
) -> dict[str, list[ListRow]]:
    """The best few of every kind that have the words of a query: those whose whole name it is, then the others by how
    much their names have to do with it."""
    found: dict[str, list[ListRow]] = {}
    if not words.split(query):
        return found
    await words.use_index(connection)
    owners = await _projects_named(connection, query)
    for name, kind in KINDS.items():
        if project_id is not None and kind.owner is None:
            continue
        request = ListRequest(kind, project_id, {}, query)
        visible = sa.select(kind.id.label("id"), kind.table.c.name).where(*_visible(request)).limit(_RANKED)
        matches = [visible.where(way) for way in kind.matching(query, owners)]
        exact = matches[0].where(sa.func.lower(kind.table.c.name) == query.lower().strip())
        either = sa.union_all(*(each.subquery().select() for each in (exact, *matches)))
        ranked = sorted((await connection.execute(either)).all(), key=lambda row: _rank(row.name, query))
        ids = list(dict.fromkeys(row.id for row in ranked))[:limit]
        if ids:
            rows = {row["id"]: row for row in await _rows(connection, kind, kind.shown(project_id is None), ids)}
            found[name] = [rows[each] for each in ids if each in rows]
    return found
