"""Who has which role in which project."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import NotFound
from roost.identity import tokens
from roost.identity.roles import ROLES, Role
from roost.store.database import violated
from roost.store.tables.identity import role_assignments


async def grant(connection: AsyncConnection, user_id: str, project_id: str, role: Role) -> None:
    """Give a user a role in a project; to give it twice is to give it once."""
    row = insert(role_assignments).values(user_id=user_id, project_id=project_id, role=role.name)
    try:
        await connection.execute(row.on_conflict_do_nothing())
    except IntegrityError as error:
        if violated(error) == "fk_role_assignments_user_id":
            raise NotFound(f"Could not find user: {user_id}.") from None
        raise NotFound(f"Could not find project: {project_id}.") from None


async def withdraw(connection: AsyncConnection, user_id: str, project_id: str, role: Role) -> None:
    """Take a role in a project from a user, and with it what its tokens may do there."""
    found = await connection.execute(role_assignments.delete().where(*_granted(user_id, project_id, role)))
    if not found.rowcount:
        raise NotFound(_no_assignment(user_id, project_id, role))
    await tokens.recheck(connection)


async def check(connection: AsyncConnection, user_id: str, project_id: str, role: Role) -> None:
    """Raise `NotFound` unless the user was given this role in this project."""
    if not await connection.scalar(sa.select(sa.exists().where(*_granted(user_id, project_id, role)))):
        raise NotFound(_no_assignment(user_id, project_id, role))


async def granted(connection: AsyncConnection, user_id: str, project_id: str) -> list[Role]:
    """The roles that were given to a user in a project, without those that they imply."""
    of_user = (role_assignments.c.user_id == user_id, role_assignments.c.project_id == project_id)
    names = set((await connection.scalars(sa.select(role_assignments.c.role).where(*of_user))).all())
    return [role for role in ROLES if role.name in names]


def _granted(user_id: str, project_id: str, role: Role) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        role_assignments.c.user_id == user_id,
        role_assignments.c.project_id == project_id,
        role_assignments.c.role == role.name,
    )


def _no_assignment(user_id: str, project_id: str, role: Role) -> str:
    return (
        f"Could not find role assignment with role: {role.id}, user or group: {user_id}, "
        f"project, domain, or system: {project_id}."
    )
