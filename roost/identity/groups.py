"""Groups of users, which have roles as users do."""

import uuid
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, NotFound
from roost.identity import domains, tokens
from roost.identity import users as users_of
from roost.store import rows
from roost.store.tables.identity import group_users, groups, users


async def index(connection: AsyncConnection, **equal: Any) -> Sequence[Any]:
    """All groups, or those of a name or a domain."""
    return await rows.index(connection, groups, "name", "id", **equal)


async def of_user(connection: AsyncConnection, user_id: str) -> Sequence[Any]:
    """The groups that a user is in."""
    member = sa.select(group_users.c.group_id).where(group_users.c.user_id == user_id)
    return (await connection.execute(sa.select(groups).where(groups.c.id.in_(member)).order_by(groups.c.name))).all()


async def show(connection: AsyncConnection, group_id: str) -> Any:
    """One group, by id and not by name."""
    missing = NotFound(f"Could not find group: {group_id}.")
    return await rows.show(connection, groups, missing, id=group_id)


async def create(connection: AsyncConnection, values: dict[str, Any]) -> Any:
    """Make a group."""
    await domains.hold(connection, values["domain_id"])
    return await rows.add(connection, groups, {"id": uuid.uuid4().hex, **values}, _taken(values["name"]))


async def update(connection: AsyncConnection, group_id: str, changes: dict[str, Any]) -> Any:
    """Rename or describe a group."""
    await show(connection, group_id)
    return await rows.change(connection, groups, changes, _taken(str(changes.get("name"))), id=group_id)


async def delete(connection: AsyncConnection, group_id: str) -> None:
    """Forget a group, and the roles that its users have by it."""
    await show(connection, group_id)
    await rows.remove(connection, groups, id=group_id)
    await tokens.recheck(connection)


async def members(connection: AsyncConnection, group_id: str) -> Sequence[Any]:
    """The users in a group."""
    await show(connection, group_id)
    inside = sa.select(group_users.c.user_id).where(group_users.c.group_id == group_id)
    return (await connection.execute(sa.select(users).where(users.c.id.in_(inside)).order_by(users.c.name))).all()


async def put(connection: AsyncConnection, group_id: str, user_id: str) -> None:
    """Add a user to a group; doing it twice changes nothing."""
    await show(connection, group_id)
    await users_of.show(connection, user_id)
    if await rows.ensure(connection, group_users, {"group_id": group_id, "user_id": user_id}):
        await tokens.recheck(connection)


async def check(connection: AsyncConnection, group_id: str, user_id: str) -> None:
    """Raise `NotFound` unless the user is in the group."""
    if await rows.find(connection, group_users, group_id=group_id, user_id=user_id) is None:
        raise NotFound(f"Could not find user '{user_id}' in group '{group_id}'.")


async def take_out(connection: AsyncConnection, group_id: str, user_id: str) -> None:
    """Take a user out of a group."""
    await check(connection, group_id, user_id)
    await rows.remove(connection, group_users, group_id=group_id, user_id=user_id)
    await tokens.recheck(connection)


def _taken(name: str) -> Conflict:
    return Conflict(f"Conflict occurred attempting to store group - Duplicate entry found with name {name}.")
