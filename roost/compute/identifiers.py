"""By which identifiers a tenant knows aggregates: the real ones are stored, and shown only where the scope allows it.

A scope's deployer chooses. Identifiers that are not allowed never leave Roost: an audit shows surrogates, made up for
that one answer. Obfuscated ones are UUIDs of the tenant's own, made in two passes:

    tenant_namespace = uuid5(scope's namespace, tenant's id)
    identifier       = uuid5(tenant_namespace, aggregate's id)
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID, uuid4, uuid5

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.compute.hosts import DEFAULT_ZONE
from roost.placement.rules import AVAILABILITY_ZONE, HOST, Rule
from roost.store.tables.compute import aggregate_hosts, aggregates, hosts, scopes


@dataclass(frozen=True, slots=True)
class Scope:
    """A way of dividing hosts, and how its aggregates may be named."""

    id: int
    """0 for the scopes that are built in."""
    uuid: str
    name: str
    allow_identifiers: bool
    obfuscate_identifiers: bool
    namespace: UUID | None = None

    def identifier_for(self, project_id: str, identifier: str) -> str:
        """How this project names an aggregate. Where naming is not allowed the real name is hidden all the same."""
        if self.namespace is None or (self.allow_identifiers and not self.obfuscate_identifiers):
            return identifier
        return str(uuid5(uuid5(self.namespace, project_id), identifier))

    def names_for(self, project_id: str, aggregate: "Aggregate") -> tuple[str, ...]:
        """All that this project may call an aggregate: where nothing is hidden, also by the name its deployer gave."""
        own = self.identifier_for(project_id, aggregate.identifier)
        return (own, aggregate.name) if own == aggregate.identifier else (own,)


class Aggregate(NamedTuple):
    """One part of a scope: by the identifier that is stored, and by its name."""

    identifier: str
    name: str


HOST_SCOPE = Scope(0, HOST, HOST, allow_identifiers=False, obfuscate_identifiers=False)
ZONE_SCOPE = Scope(0, AVAILABILITY_ZONE, AVAILABILITY_ZONE, allow_identifiers=True, obfuscate_identifiers=False)
BUILT_IN = (HOST_SCOPE, ZONE_SCOPE)

_ZONE = sa.func.coalesce(sa.func.nullif(hosts.c.availability_zone, ""), DEFAULT_ZONE)


async def load_scopes(connection: AsyncConnection) -> dict[str, Scope]:
    """Every scope by its name, the built-in ones first; one query, good for all that one request shows."""
    rows = await connection.execute(sa.select(scopes).order_by(scopes.c.id))
    return {scope.name: scope for scope in (*BUILT_IN, *map(scope_of, rows))}


def scope_of(row: sa.Row[Any]) -> Scope:
    """A scope from its row."""
    namespace = UUID(row.namespace_uuid)
    return Scope(row.id, row.uuid, row.name, row.allow_identifiers, row.obfuscate_identifiers, namespace)


async def aggregates_in(connection: AsyncConnection, scope: Scope) -> list[Aggregate]:
    """What a scope divides the hosts into. Single hosts have no names here, for nobody can ask for them."""
    if scope == HOST_SCOPE:
        return []
    if scope == ZONE_SCOPE:
        names = await connection.scalars(sa.select(_ZONE).distinct().order_by(_ZONE))
        return [Aggregate(name, name) for name in names]
    query = sa.select(aggregates.c.id, aggregates.c.name).where(aggregates.c.scope_id == scope.id)
    return [Aggregate(str(number), name) for number, name in await connection.execute(query.order_by(aggregates.c.id))]


def aggregate_of(scope: Scope, host_id: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Which part of a scope a host is in; null for none."""
    if scope == HOST_SCOPE:
        return host_id
    if scope == ZONE_SCOPE:
        return sa.select(_ZONE).where(hosts.c.id == host_id).scalar_subquery()
    inside = sa.select(aggregates.c.id).join(aggregate_hosts, aggregate_hosts.c.aggregate_id == aggregates.c.id)
    return inside.where(aggregates.c.scope_id == scope.id, aggregate_hosts.c.host_id == host_id).scalar_subquery()


def shown(rule: Rule, known: Mapping[str, Scope], project_id: str) -> Rule:
    """The rule as this project may see it."""
    if rule.identifier is None:
        return rule
    return replace(rule, identifier=known[rule.scope].identifier_for(project_id, rule.identifier))


class Surrogates:
    """Identifiers as one audit shows them: two are equal exactly where the aggregates are the same."""

    def __init__(self, known: Mapping[str, Scope], project_id: str) -> None:
        self._known = known
        self._project_id = project_id
        self._made_up: dict[tuple[str, str], str] = {}

    def of(self, scope: str, identifier: str) -> str:
        """The tenant's own identifier; where the scope allows none, one that the next answer will not repeat."""
        if self._known[scope].allow_identifiers:
            return self._known[scope].identifier_for(self._project_id, identifier)
        return self._made_up.setdefault((scope, identifier), str(uuid4()))

    def shown(self, rule: Rule) -> Rule:
        """The rule with the tenant's own identifier."""
        return shown(rule, self._known, self._project_id)
