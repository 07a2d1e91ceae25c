"""Roles: five that Roost's own permissions speak of, and any that are made beside them; and which implies which."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Forbidden, NotFound
from roost.identity import tokens
from roost.store import rows
from roost.store.tables.identity import implied_roles, role_assignments, roles

IMPLIED = {"admin": "manager", "manager": "member", "member": "reader"}


def fixed_id(name: str) -> str:
    """The id of one of the five, the same in every installation."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"roost role {name}").hex


@dataclass(frozen=True, slots=True)
class Role:
    """A role as tokens name it."""

    name: str
    id: str


ROLES = tuple(Role(name, fixed_id(name)) for name in ("admin", "manager", "member", "reader", "service"))
_ORDER = {role.name: number for number, role in enumerate(ROLES)}


async def show(connection: AsyncConnection, role_id: str) -> Any:
    """The role with this id."""
    missing = NotFound(f"Could not find role: {role_id}.")
    return await rows.show(connection, roles, missing, id=role_id)


async def index(connection: AsyncConnection, name: str | None = None) -> list[Any]:
    """All roles, or the one with this name: the five first, then by name."""
    found = await rows.index(connection, roles, "name", **({} if name is None else {"name": name}))
    return sorted(found, key=lambda role: (_ORDER.get(role.name, len(_ORDER)), role.name))


async def create(connection: AsyncConnection, values: dict[str, Any]) -> Any:
    """Make a role."""
    return await rows.add(connection, roles, {"id": uuid.uuid4().hex, **values}, _taken(values["name"]))


async def update(connection: AsyncConnection, role_id: str, changes: dict[str, Any]) -> Any:
    """Rename or describe a role; who has it keeps it."""
    before = await show(connection, role_id)
    if before.fixed and changes.get("name", before.name) != before.name:
        raise Forbidden(f"The role {before.name} is one that permissions speak of: it cannot be renamed.")
    after = await rows.change(connection, roles, changes, _taken(str(changes.get("name"))), id=role_id)
    if changes.get("name", before.name) != before.name:
        given = role_assignments.update().where(role_assignments.c.role == before.name)
        await connection.execute(given.values(role=changes["name"]))
        await tokens.recheck(connection)
    return after


async def delete(connection: AsyncConnection, role_id: str) -> None:
    """Forget a role, and take it from all who have it."""
    role = await show(connection, role_id)
    if role.fixed:
        raise Forbidden(f"The role {role.name} is one that permissions speak of: it cannot be deleted.")
    await rows.remove(connection, role_assignments, role=role.name)
    await rows.remove(connection, roles, id=role_id)
    await tokens.recheck(connection)


async def implications(connection: AsyncConnection, prior: str | None = None) -> Sequence[Any]:
    """Which role implies which, each with both ids."""
    first, second = roles.alias("first"), roles.alias("second")
    query = (
        sa.select(
            implied_roles,
            *(first.c.id.label("prior_id"), second.c.id.label("implied_id")),
        )
        .join(first, first.c.name == implied_roles.c.prior)
        .join(second, second.c.name == implied_roles.c.implied)
        .order_by(implied_roles.c.prior, implied_roles.c.implied)
    )
    if prior is not None:
        query = query.where(implied_roles.c.prior == prior)
    return (await connection.execute(query)).all()


async def imply(connection: AsyncConnection, prior: Any, implied: Any) -> None:
    """Let one role imply another; repeating it changes nothing."""
    if implied.name == "admin":
        raise Forbidden("No role may imply admin.")
    if await rows.ensure(connection, implied_roles, {"prior": prior.name, "implied": implied.name}):
        await tokens.recheck(connection)


async def imply_no_more(connection: AsyncConnection, prior: Any, implied: Any) -> None:
    """Undo `imply`."""
    if IMPLIED.get(prior.name) == implied.name:
        raise Forbidden(f"Permissions rely on {prior.name} implying {implied.name}.")
    if not await rows.remove(connection, implied_roles, prior=prior.name, implied=implied.name):
        raise NotFound(f"{prior.id} does not imply {implied.id}.")
    await tokens.recheck(connection)


def _taken(name: str) -> Conflict:
    return Conflict(f"Conflict occurred attempting to store role - Duplicate entry found with name {name}.")
