"""Services, endpoints, regions, policies and limits, kept as administrators give them for clients to read."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Forbidden, Invalid, RoostError
from roost.identity import domains, projects
from roost.store import rows
from roost.store.tables import identity as tables


@dataclass(frozen=True, slots=True)
class Registry:
    """The entries of one kind."""

    table: sa.Table

    @property
    def columns(self) -> list[str]:
        """What of an entry is kept under its own name."""
        return [column.name for column in self.table.c if column.name not in ("extra", "created_at")]

    @property
    def extensible(self) -> bool:
        """Whether an entry may have properties of other names."""
        return "extra" in self.table.c

    @property
    def described(self) -> bool:
        """Whether an entry has at least an empty description."""
        return not self.table.c.description.nullable

    async def find(self, connection: AsyncConnection, identifier: str | None) -> Any | None:
        """The entry with this id, if there is one."""
        return await rows.find(connection, self.table, id=identifier)

    async def index(self, connection: AsyncConnection, **equal: Any) -> Sequence[Any]:
        """All entries with these values, the oldest first."""
        return await rows.index(connection, self.table, "created_at", "id", **equal)

    async def add(self, connection: AsyncConnection, values: Mapping[str, Any], taken: RoostError) -> Any:
        """Add an entry; `taken` is raised where its id is."""
        return await rows.add(connection, self.table, {"id": uuid.uuid4().hex, **values}, taken)

    async def ensure(self, connection: AsyncConnection, identifier: str) -> None:
        """Add an entry that has only an id, unless it is there."""
        await rows.ensure(connection, self.table, {"id": identifier})

    async def change(self, connection: AsyncConnection, identifier: str, values: Mapping[str, Any]) -> Any:
        """Change an entry."""
        return await rows.change(connection, self.table, values, id=identifier)

    async def remove(self, connection: AsyncConnection, identifier: str, in_use: RoostError) -> None:
        """Remove an entry; the endpoints of a service go with it. `in_use` is raised where another refers to it."""
        if self.table is tables.services:
            await rows.remove(connection, tables.endpoints, service_id=identifier)
        await rows.remove(connection, self.table, in_use, id=identifier)


SERVICES = Registry(tables.services)
ENDPOINTS = Registry(tables.endpoints)
REGIONS = Registry(tables.regions)
POLICIES = Registry(tables.stored_policies)
REGISTERED_LIMITS = Registry(tables.registered_limits)


# Limits: what one project or domain may have of what is registered

_OF = (tables.registered_limits.c[name] for name in ("service_id", "region_id", "resource_name"))
_LIMITS = sa.select(tables.limits, *_OF).join(tables.registered_limits).order_by(tables.limits.c.created_at)


async def limits(connection: AsyncConnection, **equal: str) -> Sequence[Any]:
    """All limits with these values, each with what it is registered for."""
    query = _LIMITS
    for key, value in equal.items():
        table = tables.limits if key in tables.limits.c else tables.registered_limits
        query = query.where(table.c[key] == value)
    return (await connection.execute(query)).all()


async def add_limit(connection: AsyncConnection, given: Mapping[str, Any]) -> Any:
    """Add the limit of a project or a domain."""
    what = {key: given.get(key) for key in ("service_id", "region_id", "resource_name")}
    registered = next(iter(await REGISTERED_LIMITS.index(connection, **what)), None)
    if registered is None:
        raise Forbidden("Unable to create limits because there are no registered limits for them.")
    owner = {key: given.get(key) for key in ("project_id", "domain_id")}
    if (owner["project_id"] is None) == (owner["domain_id"] is None):
        raise Invalid("A limit is that of one project or one domain.")
    if owner["project_id"] is not None:
        await projects.show(connection, owner["project_id"])
    else:
        await domains.show(connection, str(owner["domain_id"]))
    if await rows.index(connection, tables.limits, registered_limit_id=registered.id, **owner):
        raise Conflict("Conflict occurred attempting to store limit - Duplicate entry.")
    amount = {"resource_limit": given["resource_limit"], "description": given.get("description")}
    row = {"id": uuid.uuid4().hex, "registered_limit_id": registered.id, **owner, **amount}
    made = await rows.add(connection, tables.limits, row)
    return (await limits(connection, id=made.id))[0]


async def change_limit(connection: AsyncConnection, limit_id: str, values: Mapping[str, Any]) -> None:
    """Change a limit."""
    await rows.change(connection, tables.limits, values, id=limit_id)


async def remove_limit(connection: AsyncConnection, limit_id: str) -> None:
    """Remove a limit."""
    await rows.remove(connection, tables.limits, id=limit_id)
