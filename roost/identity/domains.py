"""Domains: what users, groups and projects are in. One always exists."""

import uuid
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Forbidden, NotFound
from roost.identity import tokens
from roost.store import rows
from roost.store.tables.identity import domains, grants, group_users, projects, users

DOMAIN_ID, DOMAIN_NAME = "default", "Default"


async def index(connection: AsyncConnection, **equal: Any) -> Sequence[Any]:
    """All domains, or those with this name or state."""
    return await rows.index(connection, domains, "name", **equal)


async def of_user(connection: AsyncConnection, user_id: str) -> Sequence[Any]:
    """The enabled domains on which a user has a role."""
    groups = sa.select(group_users.c.group_id).where(group_users.c.user_id == user_id)
    held = sa.select(grants.c.domain_id).where(
        ~grants.c.inherited, (grants.c.user_id == user_id) | grants.c.group_id.in_(groups)
    )
    query = sa.select(domains).where(domains.c.id.in_(held), domains.c.enabled).order_by(domains.c.name)
    return (await connection.execute(query)).all()


async def show(connection: AsyncConnection, domain_id: str, *, lock: bool = False) -> Any:
    """One domain, by id and not by name."""
    missing = NotFound(f"Could not find domain: {domain_id}.")
    return await rows.show(connection, domains, missing, lock=lock, id=domain_id)


async def hold(connection: AsyncConnection, domain_id: str) -> None:
    """Raise `NotFound` unless the domain is there, and keep it until the transaction ends."""
    query = sa.select(domains.c.id).where(domains.c.id == domain_id).with_for_update(read=True)
    if await connection.scalar(query) is None:
        raise NotFound(f"Could not find domain: {domain_id}.")


async def create(connection: AsyncConnection, values: dict[str, Any]) -> Any:
    """Make a domain."""
    return await rows.add(connection, domains, {"id": uuid.uuid4().hex, **values}, _taken(values["name"]))


async def update(connection: AsyncConnection, domain_id: str, changes: dict[str, Any]) -> Any:
    """Change a domain; while it is disabled, its users cannot sign in."""
    await show(connection, domain_id)
    if domain_id == DOMAIN_ID and not changes.get("enabled", True):
        raise Forbidden("The default domain cannot be disabled: the operators of this Roost are in it.")
    after = await rows.change(connection, domains, changes, _taken(str(changes.get("name"))), id=domain_id)
    await tokens.recheck(connection)
    return after


async def delete(connection: AsyncConnection, domain_id: str) -> None:
    """Forget a domain with all that is in it; it must be disabled first."""
    if (await show(connection, domain_id, lock=True)).enabled:
        raise Forbidden("Cannot delete a domain that is enabled, please disable it first.")
    for table in (users, projects):
        await rows.remove(connection, table, domain_id=domain_id)
    await rows.remove(connection, domains, id=domain_id)
    await tokens.recheck(connection)


def _taken(name: str) -> Conflict:
    return Conflict(f"Conflict occurred attempting to store domain - Duplicate entry found with name {name}.")
