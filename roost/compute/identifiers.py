"""By which identifiers a tenant knows aggregates: the real ones are stored, and shown only where the scope allows it.

A scope's deployer chooses. Identifiers that are not allowed never leave Roost: an audit shows surrogates, made up for
that one answer. Obfuscated ones are UUIDs of the tenant's own, made in two passes:

    tenant_namespace = uuid5(scope's namespace, tenant's id)
    identifier       = uuid5(tenant_namespace, aggregate's id)
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID, uuid4, uuid5

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.placement.rules import AVAILABILITY_ZONE, HOST, Rule
from roost.store.tables.compute import scopes


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


HOST_SCOPE = Scope(0, HOST, HOST, allow_identifiers=False, obfuscate_identifiers=False)
ZONE_SCOPE = Scope(0, AVAILABILITY_ZONE, AVAILABILITY_ZONE, allow_identifiers=True, obfuscate_identifiers=False)
BUILT_IN = (HOST_SCOPE, ZONE_SCOPE)


async def load_scopes(connection: AsyncConnection) -> dict[str, Scope]:
    """Every scope by its name, the built-in ones first; one query, good for all that one request shows."""
    rows = await connection.execute(sa.select(scopes).order_by(scopes.c.id))
    made = (
        Scope(row.id, row.uuid, row.name, row.allow_identifiers, row.obfuscate_identifiers, UUID(row.namespace_uuid))
        for row in rows
    )
    return {scope.name: scope for scope in (*BUILT_IN, *made)}


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
