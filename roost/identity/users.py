"""Users, and whose password is right."""

import asyncio
import functools
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import argon2
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, NotFound
from roost.identity import domains, tokens
from roost.identity.projects import duplicate
from roost.store import rows
from roost.store.tables.identity import projects, role_assignments, users

# The least that OWASP advises, in one thread a password: a sign-in takes as little of the CPU from others as it may.
_hasher = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_threads = ThreadPoolExecutor(2, "passwords")
_wrong_seconds = 0.25
"""How long a wrong one takes in any case, so that guessing takes time and not the CPU."""


async def ensure(connection: AsyncConnection, passwords: Mapping[str, str]) -> dict[str, str]:
    """Make sure that users of these names exist and have these passwords; returns their ids."""
    found = {name: await find(connection, name=name) for name in passwords}
    # Argon2 is slow by design: they are worked on side by side.
    changed = await asyncio.gather(*(_changed_hash(found[name], password) for name, password in passwords.items()))
    ids = {}
    for (name, user), password_hash in zip(found.items(), changed, strict=True):
        if user is None:
            user = await _add(connection, name, str(password_hash))
        elif password_hash is not None:
            await _change(connection, user.id, {"password_hash": password_hash})
        ids[name] = user.id
    return ids


async def _changed_hash(user: Any | None, password: str) -> str | None:
    """What is to be kept of a password, if that is not what is kept already."""
    return None if user is not None and await matches(user.password_hash, password) else await hashed(password)


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


async def create(connection: AsyncConnection, name: str, password: str | None, **more: Any) -> Any:
    """Make a user; without a password it cannot sign in until it is given one."""
    return await _add(
        connection, name, await hashed(password if password is not None else secrets.token_urlsafe(32)), **more
    )


async def _add(connection: AsyncConnection, name: str, password_hash: str, **more: Any) -> Any:
    await domains.hold(connection, more.get("domain_id", domains.DOMAIN_ID))
    row = {"id": uuid.uuid4().hex, "name": name, "password_hash": password_hash, **more}
    return await rows.add(connection, users, row, Conflict(duplicate("user", name)))


async def update(connection: AsyncConnection, user_id: str, changes: dict[str, Any]) -> Any:
    """Change a user; a new password or state ends all its tokens."""
    await show(connection, user_id)
    columns = {key: value for key, value in changes.items() if key != "password"}
    if "password" in changes:
        columns["password_hash"] = await hashed(changes["password"])
    await _change(connection, user_id, columns)
    return await show(connection, user_id)


async def _change(connection: AsyncConnection, user_id: str, columns: dict[str, Any]) -> None:
    await rows.change(connection, users, columns, Conflict(duplicate("user", str(columns.get("name")))), id=user_id)
    if columns.keys() & {"password_hash", "enabled"}:
        await tokens.revoke_all(connection, user_id)


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


async def hashed(password: str) -> str:
    """What is kept of a password or another secret."""
    return str(await _slowly(_hasher.hash, password))


async def _slowly(work: Callable[..., Any], *arguments: Any) -> Any:
    """Argon2 is slow by design: it runs off the event loop, in threads that nothing else needs."""
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)


@functools.cache
def _nobody() -> str:
    return _hasher.hash(secrets.token_urlsafe(32))
