"""Users, and whose password is right."""

import asyncio
import functools
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NewType

import argon2
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, NotFound
from roost.identity import domains, tokens
from roost.identity.projects import duplicate
from roost.store import rows
from roost.store.database import Database
from roost.store.tables.identity import projects, role_assignments, users

PasswordHash = NewType("PasswordHash", str)
"""What is kept of a password."""

# The least that OWASP advises, in one thread a password: a sign-in takes as little of the CPU from others as it may.
_hasher = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_threads = ThreadPoolExecutor(2, "passwords")
_wrong_seconds = 0.25
"""How long a wrong one takes in any case, so that guessing takes time and not the CPU."""


async def kept(database: Database, passwords: Mapping[str, str]) -> dict[str, PasswordHash]:
    """What is to be kept of these passwords of users: what is there, where that is of the same password."""
    async with database.autocommit() as connection:
        query = sa.select(users.c.name, users.c.password_hash).where(users.c.name.in_(passwords))
        there = {row.name: PasswordHash(row.password_hash) for row in await connection.execute(query)}

    async def of(name: str, password: str) -> PasswordHash:
        known = there.get(name)
        return known if known is not None and await matches(known, password) else await hashed(password)

    hashes = await asyncio.gather(*(of(name, password) for name, password in passwords.items()))
    return dict(zip(passwords, hashes, strict=True))


async def ensure(connection: AsyncConnection, hashes: Mapping[str, PasswordHash]) -> dict[str, str]:
    """Make sure that users of these names exist and have these passwords; returns their ids."""
    ids = {}
    for name, password_hash in hashes.items():
        user = await find(connection, name=name) or await create(connection, name, password_hash)
        if user.password_hash != password_hash:
            await update(connection, user.id, {"password_hash": password_hash})
        ids[name] = user.id
    return ids


async def grant_in(connection: AsyncConnection, user_id: str, project: str, role: str) -> None:
    """Make sure that a user has this role in the project of this name, which is made if it is not there."""
    await connection.execute(insert(projects).values(id=uuid.uuid4().hex, name=project).on_conflict_do_nothing())
    project_id = sa.select(projects.c.id).where(projects.c.name == project).scalar_subquery()
    granted = insert(role_assignments).values(user_id=user_id, project_id=project_id, role=role)
    await connection.execute(granted.on_conflict_do_nothing())


async def index(connection: AsyncConnection, **equal: Any) -> Sequence[Any]:
    """All users, or those with this name, state or domain."""
    return await rows.index(connection, users, "name", **equal)


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


async def create(connection: AsyncConnection, name: str, password_hash: PasswordHash, **more: Any) -> Any:
    """Make a user."""
    await domains.hold(connection, more.get("domain_id", domains.DOMAIN_ID))
    row = {"id": uuid.uuid4().hex, "name": name, "password_hash": password_hash, **more}
    return await rows.add(connection, users, row, Conflict(duplicate("user", name)))


async def update(connection: AsyncConnection, user_id: str, columns: Mapping[str, Any]) -> Any:
    """Change a user; a new password or state ends all its tokens."""
    await show(connection, user_id)
    await rows.change(connection, users, columns, Conflict(duplicate("user", str(columns.get("name")))), id=user_id)
    if columns.keys() & {"password_hash", "enabled"}:
        await tokens.revoke_all(connection, user_id)
    return await show(connection, user_id)


async def delete(connection: AsyncConnection, user_id: str) -> None:
    """Forget a user, its roles and its tokens."""
    await show(connection, user_id)
    await connection.execute(users.delete().where(users.c.id == user_id))
    await tokens.recheck(connection)


async def is_right(user: Any | None, password: str) -> bool:
    """Whether this is the password of an enabled user. An unknown user takes as long as a known one, so names cannot be
    probed."""
    nobody = await _slowly(_nobody)
    right = await matches(user.password_hash if user is not None else nobody, password)
    right = right and user is not None and bool(user.enabled)
    if not right:
        await asyncio.sleep(_wrong_seconds)
    return right


async def matches(password_hash: str, password: str) -> bool:
    """Whether this is the password."""
    try:
        return bool(await _slowly(_hasher.verify, password_hash, password))
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


async def hashed(password: str | None) -> PasswordHash:
    """What is kept of a password or another secret; without one, nobody can sign in."""
    return PasswordHash(await _slowly(_hasher.hash, secrets.token_urlsafe(32) if password is None else password))


async def _slowly(work: Callable[..., Any], *arguments: Any) -> Any:
    """Argon2 is slow by design: it runs off the event loop, in threads of its own, and before a transaction
    begins: PostgreSQL ends one that is silent for long, and others wait for what it holds."""
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)


@functools.cache
def _nobody() -> str:
    return _hasher.hash(secrets.token_urlsafe(32))
