"""Users, and whose password is right."""

import asyncio
import functools
import secrets
import uuid
from collections.abc import Sequence
from typing import Any

import argon2
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, NotFound
from roost.identity import tokens
from roost.identity.projects import duplicate
from roost.store.tables.identity import projects, role_assignments, users

_hasher = argon2.PasswordHasher()


async def ensure(connection: AsyncConnection, name: str, password: str, project: str, role: str) -> None:
    """Make sure that this user exists, has this password, and this role in this project."""
    await connection.execute(insert(projects).values(id=uuid.uuid4().hex, name=project).on_conflict_do_nothing())
    found = await find(connection, name=name)
    if found is None:
        found = await create(connection, name, password)
    elif not await matches(found.password_hash, password):
        await update(connection, found.id, {"password": password})
    project_id = sa.select(projects.c.id).where(projects.c.name == project).scalar_subquery()
    granted = insert(role_assignments).values(user_id=found.id, project_id=project_id, role=role)
    await connection.execute(granted.on_conflict_do_nothing())


async def index(connection: AsyncConnection, name: str | None = None, enabled: bool | None = None) -> Sequence[Any]:
    """All users, or those with this name or state."""
    query = sa.select(users).order_by(users.c.name)
    if name is not None:
        query = query.where(users.c.name == name)
    if enabled is not None:
        query = query.where(users.c.enabled == enabled)
    return (await connection.execute(query)).all()


async def find(connection: AsyncConnection, *, user_id: str | None = None, name: str | None = None) -> Any | None:
    """The user with this id or name, if there is one."""
    wanted = users.c.id == user_id if user_id is not None else users.c.name == name
    return (await connection.execute(sa.select(users).where(wanted))).one_or_none()


async def show(connection: AsyncConnection, user_id: str) -> Any:
    """One user, by id and not by name."""
    found = await find(connection, user_id=user_id)
    if found is None:
        raise NotFound(f"Could not find user: {user_id}.")
    return found


async def create(connection: AsyncConnection, name: str, password: str | None, enabled: bool = True) -> Any:
    """Make a user; without a password it cannot sign in until it is given one."""
    password_hash = await _hash(password if password is not None else secrets.token_urlsafe(32))
    row = users.insert().values(id=uuid.uuid4().hex, name=name, password_hash=password_hash, enabled=enabled)
    try:
        return (await connection.execute(row.returning(users))).one()
    except IntegrityError:
        raise Conflict(duplicate("user", name)) from None


async def update(connection: AsyncConnection, user_id: str, changes: dict[str, Any]) -> Any:
    """Change the name, the password or the state of a user; a new password or state ends all its tokens."""
    await show(connection, user_id)
    columns = {key: value for key, value in changes.items() if key != "password"}
    if "password" in changes:
        columns["password_hash"] = await _hash(changes["password"])
    if columns:
        try:
            await connection.execute(users.update().where(users.c.id == user_id).values(**columns))
        except IntegrityError:
            raise Conflict(duplicate("user", changes["name"])) from None
    if columns.keys() & {"password_hash", "enabled"}:
        await tokens.revoke_all(connection, user_id)
    return await show(connection, user_id)


async def delete(connection: AsyncConnection, user_id: str) -> None:
    """Forget a user, its roles and its tokens."""
    await show(connection, user_id)
    await connection.execute(users.delete().where(users.c.id == user_id))
    await tokens.recheck(connection)


async def is_right(user: Any | None, password: str) -> bool:
    """Whether this is the password of an enabled user. Nobody takes as long as somebody, so names cannot be probed."""
    nobody = await asyncio.to_thread(_nobody)
    right = await matches(user.password_hash if user is not None else nobody, password)
    return right and user is not None and bool(user.enabled)


async def matches(password_hash: str, password: str) -> bool:
    """Whether this is the password. Slow by design, so it is done off the event loop."""
    try:
        return await asyncio.to_thread(_hasher.verify, password_hash, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


async def _hash(password: str) -> str:
    return await asyncio.to_thread(_hasher.hash, password)


@functools.cache
def _nobody() -> str:
    return _hasher.hash(secrets.token_urlsafe(32))
