"""Projects and users, who has which role where, and whose password is right."""

import asyncio
import uuid

import argon2
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.identity import tokens
from roost.store.tables.identity import projects, role_assignments, users

DOMAIN_ID, DOMAIN_NAME = "default", "Default"

_hasher = argon2.PasswordHasher()


async def ensure(connection: AsyncConnection, name: str, password: str, project: str, role: str) -> None:
    """Make sure that this user exists, has this password, and this role in this project."""
    await connection.execute(insert(projects).values(id=uuid.uuid4().hex, name=project).on_conflict_do_nothing())
    found = (await connection.execute(sa.select(users).where(users.c.name == name))).one_or_none()
    if found is None:
        user_id = uuid.uuid4().hex
        await connection.execute(users.insert().values(id=user_id, name=name, password_hash=await _hash(password)))
    elif not await matches(found.password_hash, password):
        user_id = found.id
        changed = users.update().where(users.c.id == user_id).values(password_hash=await _hash(password))
        await connection.execute(changed)
        await tokens.revoke_all(connection, user_id)
    else:
        user_id = found.id
    project_id = sa.select(projects.c.id).where(projects.c.name == project).scalar_subquery()
    granted = insert(role_assignments).values(user_id=user_id, project_id=project_id, role=role)
    await connection.execute(granted.on_conflict_do_nothing())


async def matches(password_hash: str, password: str) -> bool:
    """Whether this is the password. Slow by design, so it is done off the event loop."""
    try:
        return await asyncio.to_thread(_hasher.verify, password_hash, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


async def _hash(password: str) -> str:
    return await asyncio.to_thread(_hasher.hash, password)
