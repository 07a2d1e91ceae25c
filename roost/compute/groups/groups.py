"""Server groups: their policies, and which servers belong to each; `members` changes the latter.

A change of a group's policies, its members, or what its members claim locks the group's row and raises its
`version`. Policies are stored with real identifiers (`rules_of`, for scheduling); a `Group` has them as its own project
may see them, and is all that leaves this module otherwise.
"""

import functools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, UUID, aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.groups import identifiers, notifications
from roost.compute.groups.notifications import Payload
from roost.compute.inventory import claims, quotas
from roost.compute.inventory.scopes import (
    HOST_SCOPE,
    Scope,
    ScopePart,
    aggregate_of,
    aggregates_in,
    load_scopes,
    lock_scopes,
)
from roost.config import Settings
from roost.errors import Invalid, NotFound, OverQuota
from roost.placement.partitions import number
from roost.placement.rules import AVAILABILITY_ZONE, HOST, TYPES, Limit, Rule, contradictions, division_of
from roost.store import bulk, pages
from roost.store.pages import EVERYTHING, PageRequest, SortKey
from roost.store.tables.compute import aggregates, scopes
from roost.store.tables.servers import project_usage, server_group_policies, server_groups, servers
from roost.store.uuids import is_uuid
from roost.suggestions import known_names

_THERE = server_groups.c.missing_since.is_(None)


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """One rule of a group, and whether its scope was written out where it could have been left out."""

    rule: Rule
    spelled_out: bool = False

    @property
    def name(self) -> str:
        """The type alone: affinity, anti-affinity, or the soft form of one."""
        return str(self.rule).partition(":")[0]

    def __str__(self) -> str:
        """The policy as TYPE[:SCOPE[:IDENTIFIER]]."""
        return f"{self.rule}:{HOST}" if self.spelled_out else str(self.rule)

    @property
    def flat_rules(self) -> dict[str, int | str]:
        """The limits, with the scope and the identifier among them: the form that Nova's own API has room for."""
        flat: dict[str, int | str] = {str(name): value for name, value in self.rule.limits.items()}
        if self.rule.scope != HOST or self.spelled_out:
            flat["scope"] = self.rule.scope
        if self.rule.identifier is not None:
            flat["identifier"] = self.rule.identifier
        return flat


@dataclass(frozen=True, slots=True)
class Group:
    """A server group as its own project may see it."""

    id: str
    name: str
    project_id: str
    user_id: str
    policies: tuple[GroupPolicy, ...] = ()
    members: tuple[str, ...] = ()
    partitions: Mapping[str, int | None] = field(default_factory=dict)
    """The number of each member, where the policies divide the group; None for one that found no host."""


class _StoredGroup(NamedTuple):
    """A group without what belongs to it."""

    id: str
    name: str
    project_id: str
    user_id: str


_STORED = sa.select(*(server_groups.c[name] for name in _StoredGroup._fields))


async def index(connection: AsyncConnection, *, project_id: str | None, page: PageRequest = EVERYTHING) -> list[Group]:
    """The groups of a project, or of all (None), in the order in which they were made, a page at a time."""
    visible = _STORED.where(_THERE)
    if project_id is not None:
        visible = visible.where(server_groups.c.project_id == project_id)
    rows = await pages.read(connection, visible, [SortKey(server_groups.c.number)], page, named=server_groups.c.id)
    return await _assemble(connection, rows)


async def find(connection: AsyncConnection, group_id: str, *, or_missing: bool = False) -> Group:
    """One group; a name is not an id, so the clients go on to search. A group that is missing in Nova is not found,
    unless it is asked for."""
    query = _STORED.where(server_groups.c.id == group_id)
    if not or_missing:
        query = query.where(_THERE)
    found = await _assemble(connection, await connection.execute(query)) if is_uuid(group_id) else ()
    if not found:
        raise missing(group_id)
    return found[0]


def missing(group_id: str) -> NotFound:
    """What to say of a group that is not there, or not for this caller."""
    return NotFound(f"Instance group {group_id} could not be found.")


async def create(
    connection: AsyncConnection,
    settings: Settings,
    *,
    name: str,
    policies: Sequence[GroupPolicy],
    project_id: str,
    user_id: str,
    group_id: str | None = None,
) -> Group:
    """Make a group, under an id that it has elsewhere already if one is given. Its policies come with the identifiers
    that the project knows."""
    rows = await _resolve(connection, policies, project_id)
    await _count(connection, settings, project_id, user_id)
    values: dict[str, Any] = {"name": name, "project_id": project_id, "user_id": user_id}
    if group_id is not None:
        # It has been made elsewhere by now, and not yet when this transaction began.
        values |= {"id": group_id, "created_at": sa.func.clock_timestamp()}
    made = (await connection.execute(server_groups.insert().values(values).returning(server_groups.c.id))).scalar_one()
    await _store(connection, made, rows)
    group = await find(connection, made)
    await _announce(connection, settings, notifications.CREATE, group)
    return group


async def check_policies(
    connection: AsyncConnection, policies: Sequence[GroupPolicy], project_id: str
) -> tuple[Rule, ...]:
    """Raise `Invalid` if a project cannot use these policies, or not together; else their rules, with real identifiers:
    for deciding, never for showing."""
    rows = await _resolve(connection, policies, project_id)
    real = (row["zone"] if row["aggregate_id"] is None else str(row["aggregate_id"]) for row in rows)
    return tuple(replace(policy.rule, identifier=each) for policy, each in zip(policies, real, strict=True))


async def adopt(
    connection: AsyncConnection, group_id: str, *, name: str, rule: Rule, project_id: str, user_id: str
) -> None:
    """Take over a group that Nova has made, with the one rule that Nova knows. Nova has notified its listeners."""
    values = {"id": group_id, "name": name, "project_id": project_id, "user_id": user_id}
    await connection.execute(server_groups.insert().values(values))
    await _store(connection, group_id, [_row(GroupPolicy(rule), HOST_SCOPE, None)])
    await claims.lock_usage(connection, project_id)
    await _use(connection, project_id, 1)


async def mark_missing(connection: AsyncConnection, settings: Settings, group_ids: Collection[str]) -> list[Group]:
    """Hide groups that Nova does not list any more, with their rules and members; those that were not hidden yet."""
    rows = await connection.execute(_STORED.where(server_groups.c.id.in_(group_ids), _THERE))
    lost = await _assemble(connection, rows)
    marked = server_groups.update().where(server_groups.c.id.in_([group.id for group in lost]))
    await connection.execute(marked.values(missing_since=sa.func.now(), version=server_groups.c.version + 1))
    for group in lost:
        await _announce(connection, settings, notifications.MISSING, group)
    return lost


async def mark_found(connection: AsyncConnection, group_ids: Collection[str]) -> list[str]:
    """Show groups again that were missing; their ids."""
    back = server_groups.update().where(server_groups.c.id.in_(group_ids), ~_THERE).returning(server_groups.c.id)
    shown = back.values(missing_since=None, version=server_groups.c.version + 1)
    return list(await connection.scalars(shown))


async def update(
    connection: AsyncConnection,
    settings: Settings,
    group: Group,
    *,
    name: str | None,
    policies: Sequence[GroupPolicy] | None,
) -> Group:
    """Rename a group, or give it other policies, or both; members that break the new ones stay where they are.

    When a group becomes divided, its members get partition numbers; members that have one keep it while that
    partition exists.
    """
    if policies is None:
        await lock(connection, group.id)
    else:
        rows = await _resolve(connection, policies, group.project_id)
        await _lock_with_members(connection, group.id)
        await connection.execute(server_group_policies.delete().where(server_group_policies.c.group_id == group.id))
        await _store(connection, group.id, rows)
        await divide(connection, group.id)
    values = {"version": server_groups.c.version + 1, **({} if name is None else {"name": name})}
    await connection.execute(server_groups.update().where(server_groups.c.id == group.id).values(values))
    changed = await find(connection, group.id)
    await _announce(connection, settings, notifications.UPDATE, changed)
    return changed


async def delete(connection: AsyncConnection, settings: Settings, group: Group) -> None:
    """Forget a group; its members stay, and belong to none."""
    left = await _lock_with_members(connection, group.id, [group.project_id])
    await _use(connection, group.project_id, -1)
    await connection.execute(server_groups.delete().where(server_groups.c.id == group.id))
    await _announce(connection, settings, notifications.DELETE, replace(group, members=left))


async def rules_of(connection: AsyncConnection, group_ids: Iterable[str]) -> dict[str, tuple[Rule, ...]]:
    """The rules of these groups with real identifiers: for deciding, never for showing."""
    found = await _policies(connection, group_ids)
    return {group_id: tuple(policy.rule for policy in policies) for group_id, policies in found.items()}


async def brief(connection: AsyncConnection, group_ids: Sequence[str]) -> dict[str, Group]:
    """These groups as their projects see them, without their members."""
    rows = await connection.execute(_STORED.where(_among(server_groups.c.id, group_ids)))
    return {group.id: group for group in await _assemble(connection, rows, with_members=False)}


def payload(group: Group) -> Payload:
    """The group as notifications show it."""
    first = group.policies[0]
    return notifications.server_group_payload(
        uuid=group.id,
        name=group.name,
        project_id=group.project_id,
        user_id=group.user_id,
        policies=[str(policy) for policy in group.policies],
        policy=first.name,
        rules={name: str(value) for name, value in first.flat_rules.items()},
        members=list(group.members),
    )


async def _assemble(
    connection: AsyncConnection, rows: Iterable[Sequence[Any]], *, with_members: bool = True
) -> list[Group]:
    """Groups with what belongs to them, in as many queries for a thousand as for one. Every group has a policy: one
    without was deleted between two of the queries, and is left out."""
    stored = [_StoredGroup._make(row) for row in rows]
    if not stored:
        return []
    group_ids = [group.id for group in stored]
    known = await load_scopes(connection)
    policies = await _policies(connection, group_ids)
    members = await _members(connection, group_ids) if with_members else {}
    divided = [group_id for group_id in group_ids if _divided(policies[group_id])] if with_members else []
    numbers = await _partitions(connection, divided) if divided else {}
    return [
        Group(
            *group,
            tuple(_shown(policy, known, group.project_id) for policy in policies[group.id]),
            tuple(members.get(group.id, ())),
            numbers.get(group.id, {}),
        )
        for group in stored
        if policies[group.id]
    ]


def _divided(policies: Iterable[GroupPolicy]) -> bool:
    return division_of([policy.rule for policy in policies]) is not None


def _shown(policy: GroupPolicy, known: Mapping[str, Scope], project_id: str) -> GroupPolicy:
    if policy.rule.identifier is None:
        return policy
    return replace(policy, rule=identifiers.shown(policy.rule, known, project_id))


async def _policies(connection: AsyncConnection, group_ids: Iterable[str]) -> dict[str, list[GroupPolicy]]:
    table = server_group_policies
    wanted = list(group_ids)
    query = (
        sa.select(
            sa.cast(table.c.group_id, sa.Text),
            table.c.name,
            sa.func.coalesce(table.c.builtin_scope, scopes.c.name),
            sa.func.coalesce(sa.cast(table.c.aggregate_id, sa.Text), table.c.zone),
            sa.cast(table.c.rules, sa.Text),
        )
        .outerjoin(scopes, scopes.c.id == table.c.scope_id)
        .where(_among(table.c.group_id, wanted))
        .order_by(table.c.group_id, table.c.position)
    )
    found: dict[str, list[GroupPolicy]] = {group_id: [] for group_id in wanted}
    for group_id, *policy in await connection.execute(query):
        found[group_id].append(_policy(*policy))
    return found


@functools.lru_cache(maxsize=4096)
def _policy(name: str, scope: str, identifier: str | None, written: str) -> GroupPolicy:
    """A policy as it is stored; among a thousand groups there are few different ones."""
    kind, soft = TYPES[name]
    rules = json.loads(written)
    limits = {str(limit): rules[limit] for limit in Limit if limit in rules}
    return GroupPolicy(Rule(kind, soft, scope, identifier, **limits), spelled_out="scope" in rules)


async def _members(connection: AsyncConnection, group_ids: Iterable[str]) -> dict[str, Sequence[str]]:
    """The members of each group in the order in which they were made: a row of texts for each group."""
    in_order = sa.func.array_agg(aggregate_order_by(sa.cast(servers.c.id, sa.Text), servers.c.number))
    query = sa.select(sa.cast(servers.c.group_id, sa.Text), in_order).where(_among(servers.c.group_id, group_ids))
    rows = await connection.execute(query.group_by(servers.c.group_id))
    return {row[0]: row[1] for row in rows}


async def _partitions(connection: AsyncConnection, group_ids: Iterable[str]) -> dict[str, dict[str, int | None]]:
    """The partition of each member of these groups."""
    columns = (servers.c.group_id, servers.c.id, servers.c.partition)
    query = sa.select(*columns).where(_among(servers.c.group_id, group_ids))
    found: dict[str, dict[str, int | None]] = {}
    for group_id, server_id, partition in await connection.execute(query.order_by(servers.c.number)):
        found.setdefault(group_id, {})[server_id] = partition
    return found


def _among(column: sa.ColumnElement[Any], values: Iterable[str]) -> sa.ColumnElement[bool]:
    """One array however many values, so that the statement stays the same."""
    given = sa.literal(list(values), ARRAY(sa.Text))
    return column == sa.any_(sa.cast(given, ARRAY(UUID(as_uuid=False))))


async def _announce(connection: AsyncConnection, settings: Settings, event: str, group: Group) -> None:
    if notifications.wanted(settings):
        await notifications.write(connection, event, [payload(group)])


async def lock(connection: AsyncConnection, group_id: str) -> None:
    """Lock a group, if it is still there."""
    if not await claims.lock_groups(connection, [group_id]):
        raise missing(group_id)


async def _lock_with_members(
    connection: AsyncConnection, group_id: str, projects: Collection[str] = ()
) -> tuple[str, ...]:
    """Lock the members, then the usage of these projects, then the group: the order that all transactions share.
    Returns the members.

    Members that join before the group is locked are locked after it, unless another transaction holds one: it may be
    waiting for the group, so everything is released and locked again.
    """
    query = sa.select(servers.c.id).where(servers.c.group_id == group_id).order_by(servers.c.id)
    while True:
        attempt = await connection.begin_nested()
        await connection.execute(query.with_for_update())
        for project_id in sorted(projects):
            await claims.lock_usage(connection, project_id)
        await lock(connection, group_id)
        members = tuple((await connection.execute(query)).scalars())
        locked = tuple((await connection.execute(query.with_for_update(skip_locked=True))).scalars())
        if locked == members:
            await attempt.commit()
            return members
        await attempt.rollback()


async def divide(connection: AsyncConnection, group_id: str) -> None:
    """Give a partition to each member of a locked group that has none, if the group is divided.

    A member that another transaction has locked is left as it is: that transaction may be waiting for the group.
    """
    members = servers.c.group_id == group_id
    rule = division_of((await rules_of(connection, [group_id]))[group_id])
    if rule is None or rule.partitions is None:
        numbered = servers.c.partition.is_not(None)
        await connection.execute(servers.update().where(members, numbered).values(partition=None))
        return
    scope = (await load_scopes(connection))[rule.scope]
    query = sa.select(servers.c.id, servers.c.partition, aggregate_of(scope, servers.c.host_id).label("place"))
    rows = (await connection.execute(query.where(members).order_by(servers.c.number))).all()
    before = {row.id: row.partition for row in rows}
    after = number(rule.partitions, {row.id: row.place for row in rows}, before)
    changed = [{"id": each, "partition": after[each]} for each in after if after[each] != before[each]]
    if changed:
        await connection.execute(_NUMBER, {"rows": changed})


_NUMBERED = bulk.given(servers.c.id, servers.c.partition)
_FREE = (
    sa.select(_NUMBERED)
    .join(servers, servers.c.id == _NUMBERED.c.id)
    .with_for_update(of=servers, skip_locked=True)
    .subquery()
)
_NUMBER = (
    servers.update()
    .where(servers.c.id == _FREE.c.id)
    .values(partition=_FREE.c.partition, updated_at=servers.c.updated_at)
)


async def _count(connection: AsyncConnection, settings: Settings, project_id: str, user_id: str) -> None:
    """Count one more group against the project; the row is locked, so that no two take the last place."""
    await claims.lock_usage(connection, project_id)
    count = sa.select(project_usage.c.server_groups).where(project_usage.c.project_id == project_id)
    present = (await connection.execute(count)).scalar_one()
    limit = (await quotas.limits(connection, settings.quota, project_id))["server_groups"]
    own_limit = (await quotas.limits(connection, settings.quota, project_id, user_id))["server_groups"]
    theirs = (server_groups.c.project_id == project_id, server_groups.c.user_id == user_id)
    own = await connection.scalar(sa.select(sa.func.count()).select_from(server_groups).where(*theirs))
    if 0 <= limit <= present or (own_limit != limit and 0 <= own_limit <= (own or 0)):
        raise OverQuota("Quota exceeded, too many server groups.")
    await _use(connection, project_id, 1)


async def _use(connection: AsyncConnection, project_id: str, more: int) -> None:
    """Count groups more, or fewer, that a project has."""
    counted = project_usage.update().where(project_usage.c.project_id == project_id)
    await connection.execute(counted.values(server_groups=project_usage.c.server_groups + more))


async def _store(connection: AsyncConnection, group_id: str, rows: Sequence[dict[str, Any]]) -> None:
    numbered = [{"group_id": group_id, "position": position, **row} for position, row in enumerate(rows)]
    await connection.execute(server_group_policies.insert(), numbered)


async def _resolve(
    connection: AsyncConnection, policies: Sequence[GroupPolicy], project_id: str
) -> list[dict[str, Any]]:
    """The policies as they are stored; raises `Invalid` if the project cannot use them, or not together."""
    known = await lock_scopes(connection, {policy.rule.scope for policy in policies})
    rows, rules = [], []
    for policy in policies:
        scope = known.get(policy.rule.scope)
        if scope is None:
            every = known_names(policy.rule.scope, await load_scopes(connection))
            raise Invalid(f"There is no policy scope '{policy.rule.scope}': {every}")
        identifier = await _real(connection, scope, project_id, policy.rule.identifier)
        rows.append(_row(policy, scope, identifier))
        rules.append(identifiers.shown(replace(policy.rule, identifier=identifier), known, project_id))
    _check_together(rules)
    return rows


async def _real(connection: AsyncConnection, scope: Scope, project_id: str, identifier: str | None) -> str | None:
    """The real identifier behind a project's own; those of other projects are as unknown as any other text."""
    if identifier is None:
        return None
    if not scope.allow_identifiers:
        raise Invalid(f"The policy scope '{scope.name}' does not allow identifiers: leave out '{identifier}'.")
    every = await aggregates_in(connection, scope)
    if scope.obfuscate_identifiers and is_uuid(identifier):
        identifier = identifier.lower()
    called_so = [aggregate for aggregate in every if identifier in scope.names_for(project_id, aggregate)]
    # One may be called by name what another is by number: the number wins.
    for aggregate in sorted(called_so, key=lambda found: found.identifier != identifier):
        if await _stays(connection, scope, aggregate):
            return aggregate.identifier
    shown = known_names(identifier, (scope.identifier_for(project_id, each.identifier) for each in every))
    raise Invalid(f"The policy scope '{scope.name}' has no '{identifier}': {shown}")


async def _stays(connection: AsyncConnection, scope: Scope, aggregate: ScopePart) -> bool:
    """Whether an aggregate is still in its scope, and then stays there until this transaction ends."""
    if not scope.id:
        return True
    query = sa.select(aggregates.c.id).where(
        aggregates.c.id == int(aggregate.identifier), aggregates.c.scope_id == scope.id
    )
    found = await connection.execute(query.with_for_update(read=True, key_share=True))
    return found.one_or_none() is not None


def _row(policy: GroupPolicy, scope: Scope, identifier: str | None) -> dict[str, Any]:
    zone = scope.name == AVAILABILITY_ZONE
    limits: dict[str, Any] = {str(name): value for name, value in policy.rule.limits.items()}
    return {
        "name": policy.name,
        "scope_id": scope.id or None,
        "builtin_scope": None if scope.id else scope.name,
        "aggregate_id": int(identifier) if identifier is not None and not zone else None,
        "zone": identifier if zone else None,
        "rules": {**limits, **({"scope": HOST} if policy.spelled_out else {})},
    }


def _check_together(rules: Sequence[Rule]) -> None:
    seen = set()
    for rule in rules:
        if str(rule) in seen:
            raise Invalid(f"The policy '{rule}' is given twice.")
        seen.add(str(rule))
    for contradiction in contradictions(rules):
        raise Invalid(f"These policies contradict each other: {contradiction.sentence}.")
