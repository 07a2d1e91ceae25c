"""Projects: what everything in the cloud belongs to. All are in one domain."""

import uuid
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, NotFound
from roost.identity import tokens
from roost.store.tables.identity import projects, role_assignments

DOMAIN_ID, DOMAIN_NAME = "default", "Default"


async def index(connection: AsyncConnection, name: str | None = None, enabled: bool | None = None) -> Sequence[Any]:
    """All projects, or those with this name or state."""
    query = sa.select(projects).order_by(projects.c.name)
    if name is not None:
        query = query.where(projects.c.name == name)
    if enabled is not None:
        query = query.where(projects.c.enabled == enabled)
    return (await connection.execute(query)).all()


async def of_user(connection: AsyncConnection, user_id: str) -> Sequence[Any]:
    """The enabled projects in which a user has a role."""
    held = sa.select(role_assignments.c.project_id).where(role_assignments.c.user_id == user_id)
    query = sa.select(projects).where(projects.c.id.in_(held), projects.c.enabled).order_by(projects.c.name)
    return (await connection.execute(query)).all()


async def find(connection: AsyncConnection, *, project_id: str | None = None, name: str | None = None) -> Any | None:
    """The project with this id or name, if there is one."""
    wanted = projects.c.id == project_id if project_id is not None else projects.c.name == name
    return (await connection.execute(sa.select(projects).where(wanted))).one_or_none()


async def show(connection: AsyncConnection, project_id: str) -> Any:
    """One project, by id and not by name."""
    found = await find(connection, project_id=project_id)
    if found is None:
        raise NotFound(f"Could not find project: {project_id}.")
    return found


async def create(connection: AsyncConnection, name: str, description: str, enabled: bool) -> Any:
    """Make a project."""
    row = projects.insert().values(id=uuid.uuid4().hex, name=name, description=description, enabled=enabled)
    try:
        return (await connection.execute(row.returning(projects))).one()
    except IntegrityError:
        raise Conflict(duplicate("project", name)) from None


async def update(connection: AsyncConnection, project_id: str, changes: dict[str, Any]) -> Any:
    """Change the name, the description or the state of a project; tokens of a disabled one are worthless."""
    await show(connection, project_id)
    if changes:
        try:
            await connection.execute(projects.update().where(projects.c.id == project_id).values(**changes))
        except IntegrityError:
            raise Conflict(duplicate("project", changes["name"])) from None
        await tokens.recheck(connection)
    return await show(connection, project_id)


async def delete(connection: AsyncConnection, project_id: str) -> None:
    """Forget a project, the roles in it and the tokens for it."""
    await show(connection, project_id)
    await connection.execute(projects.delete().where(projects.c.id == project_id))
    await tokens.recheck(connection)


def duplicate(kind: str, name: str) -> str:
    """What Keystone says of a name that is taken."""
    return (
        f"Conflict occurred attempting to store {kind} - Duplicate entry found with name {name} at domain ID "
        f"{DOMAIN_ID}."
    )
