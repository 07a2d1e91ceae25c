"""Server groups: their policies, their members, and who may still join.

Whoever changes a group's policies, its members, or what its members claim locks the group's row and raises its
`version`. Policies are stored with real identifiers (`rules_of`, for scheduling); a `Group` has them as its own project
may see them, and is all that leaves this module otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, UUID
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute import identifiers, notifications
from roost.compute.identifiers import Scope
from roost.config import Settings
from roost.placement.rules import HOST, TYPES, Limit, Rule
from roost.store.tables.compute import scopes
from roost.store.tables.servers import server_group_policies, server_groups, servers


@dataclass(frozen=True, slots=True)
class Policy:
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
    policies: tuple[Policy, ...] = ()
    members: tuple[str, ...] = ()


async def rules_of(connection: AsyncConnection, group_ids: Iterable[str]) -> dict[str, tuple[Rule, ...]]:
    """The rules of these groups with real identifiers: for deciding, never for showing."""
    found = await _policies(connection, group_ids)
    return {group_id: tuple(policy.rule for policy in policies) for group_id, policies in found.items()}


async def member_added(connection: AsyncConnection, settings: Settings, members: Iterable[tuple[str, str]]) -> None:
    """Announce, once this transaction commits, that these (group, server) pairs came to be."""
    await _announce_members(connection, settings, notifications.ADD_MEMBER, members)


async def member_removed(connection: AsyncConnection, settings: Settings, members: Iterable[tuple[str, str]]) -> None:
    """Announce, once this transaction commits, that these (group, server) pairs are no more."""
    await _announce_members(connection, settings, notifications.REMOVE_MEMBER, members)


async def _announce_members(
    connection: AsyncConnection, settings: Settings, event: str, members: Iterable[tuple[str, str]]
) -> None:
    pairs = list(members)
    if not notifications.wanted(settings) or not pairs:
        return
    rows = await connection.execute(
        sa.select(server_groups).where(_among(server_groups.c.id, [group_id for group_id, _ in pairs]))
    )
    found = {group.id: group for group in await _assemble(connection, rows.all(), with_members=False)}
    announced = (replace(found[group_id], members=(server_id,)) for group_id, server_id in pairs if group_id in found)
    await notifications.write(connection, event, map(_payload, announced))


def _payload(group: Group) -> dict[str, Any]:
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
    connection: AsyncConnection, rows: Sequence[sa.Row[Any]], *, with_members: bool = True
) -> list[Group]:
    """Groups with what belongs to them, in as many queries for a thousand as for one."""
    if not rows:
        return []
    group_ids = [row.id for row in rows]
    known = await identifiers.load_scopes(connection)
    policies = await _policies(connection, group_ids)
    members = await _members(connection, group_ids) if with_members else {}
    return [
        Group(
            row.id,
            row.name,
            row.project_id,
            row.user_id,
            tuple(_shown(policy, known, row.project_id) for policy in policies[row.id]),
            tuple(members.get(row.id, ())),
        )
        for row in rows
    ]


def _shown(policy: Policy, known: Mapping[str, Scope], project_id: str) -> Policy:
    return replace(policy, rule=identifiers.shown(policy.rule, known, project_id))


async def _policies(connection: AsyncConnection, group_ids: Iterable[str]) -> dict[str, list[Policy]]:
    table = server_group_policies
    wanted = list(group_ids)
    query = (
        sa.select(
            table.c.group_id,
            table.c.name,
            sa.func.coalesce(table.c.builtin_scope, scopes.c.name).label("scope"),
            sa.func.coalesce(sa.cast(table.c.aggregate_id, sa.Text), table.c.zone).label("identifier"),
            table.c.rules,
        )
        .outerjoin(scopes, scopes.c.id == table.c.scope_id)
        .where(_among(table.c.group_id, wanted))
        .order_by(table.c.group_id, table.c.position)
    )
    found: dict[str, list[Policy]] = {group_id: [] for group_id in wanted}
    for row in await connection.execute(query):
        found[row.group_id].append(_policy(row))
    return found


def _policy(row: sa.Row[Any]) -> Policy:
    kind, soft = TYPES[row.name]
    limits = {str(limit): row.rules[limit] for limit in Limit if limit in row.rules}
    return Policy(Rule(kind, soft, row.scope, row.identifier, **limits), spelled_out="scope" in row.rules)


async def _members(connection: AsyncConnection, group_ids: Iterable[str]) -> dict[str, list[str]]:
    query = sa.select(servers.c.group_id, servers.c.id).where(_among(servers.c.group_id, group_ids))
    found: dict[str, list[str]] = {}
    for group_id, server_id in await connection.execute(query.order_by(servers.c.number)):
        found.setdefault(group_id, []).append(server_id)
    return found


def _among(column: sa.ColumnElement[Any], values: Iterable[str]) -> sa.ColumnElement[bool]:
    """One array however many values, so that the statement stays the same."""
    return column == sa.any_(sa.cast(list(values), ARRAY(UUID(as_uuid=False))))
