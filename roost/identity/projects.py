"""Projects: what everything in the cloud belongs to."""

import uuid
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Forbidden, NotFound
from roost.identity import domains, tokens
from roost.store import rows
from roost.store.tables.identity import projects


async def index(connection: AsyncConnection, **wanted: Any) -> Sequence[Any]:
    """All projects, or those with this name, state, domain, parent or tags."""
    query = sa.select(projects).order_by(projects.c.name)
    for key, tags in ((key, wanted.pop(key, None)) for key in ("tags", "tags-any", "not-tags", "not-tags-any")):
        if tags is not None:
            matches = projects.c.tags.overlap(tags) if key.endswith("any") else projects.c.tags.contains(tags)
            query = query.where(~matches if key.startswith("not") else matches)
    return (await connection.execute(query.where(*(projects.c[key] == value for key, value in wanted.items())))).all()


async def of_user(connection: AsyncConnection, user_id: str) -> Sequence[Any]:
    """The enabled projects in which a user has a role."""
    return (await connection.execute(_OF_USER, {"user_id": user_id})).all()


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


async def above(connection: AsyncConnection, project: Any) -> dict[str, Any]:
    """The ids of the projects above one, each with those above it; the domain comes last."""
    nested: dict[str, Any] = {project.domain_id: None}
    for row in await connection.execute(_ABOVE, {"project_id": project.id}):
        nested = {row.id: nested}
    return nested


async def below(connection: AsyncConnection, project: Any) -> dict[str, Any] | None:
    """The ids of the projects below one, each with those below it; None if there are none."""
    children: dict[str, list[str]] = {}
    for row in await connection.execute(_BELOW, {"project_id": project.id}):
        children.setdefault(row.parent_id, []).append(row.id)
    return _nested(project.id, children)


def _nested(project_id: str, children: dict[str, list[str]]) -> dict[str, Any] | None:
    return {child: _nested(child, children) for child in children.get(project_id, ())} or None


# From the top down: the parent of a project was there before it, so there are no rings.
_ABOVE = sa.text("""
    WITH RECURSIVE line (id, parent_id, place) AS (
        SELECT id, parent_id, 0 FROM projects WHERE id = :project_id
        UNION ALL SELECT p.id, p.parent_id, place + 1 FROM projects p JOIN line ON p.id = line.parent_id
    )
    SELECT id FROM line WHERE place > 0 ORDER BY place DESC
""")
_BELOW = sa.text("""
    WITH RECURSIVE tree (id, parent_id) AS (
        SELECT id, parent_id FROM projects WHERE parent_id = :project_id
        UNION ALL SELECT p.id, p.parent_id FROM projects p JOIN tree ON p.parent_id = tree.id
    )
    SELECT id, parent_id FROM tree ORDER BY id
""")


async def create(connection: AsyncConnection, values: dict[str, Any]) -> Any:
    """Make a project."""
    await domains.hold(connection, values["domain_id"])
    if values.get("parent_id") is not None:
        parent = await rows.find(connection, projects, id=values["parent_id"], lock=True)
        if parent is None or parent.domain_id != values["domain_id"]:
            raise NotFound(f"Could not find project: {values['parent_id']}.")
    new = {"id": uuid.uuid4().hex, **values}
    return await rows.add(connection, projects, new, Conflict(duplicate("project", values["name"])))


async def update(connection: AsyncConnection, project_id: str, changes: dict[str, Any]) -> Any:
    """Change a project; tokens of a disabled one become invalid."""
    await show(connection, project_id)
    if changes:
        taken = Conflict(duplicate("project", str(changes.get("name"))))
        await rows.change(connection, projects, changes, taken, id=project_id)
        await tokens.recheck(connection)
    return await show(connection, project_id)


async def delete(connection: AsyncConnection, project_id: str) -> None:
    """Forget a project, the roles in it and the tokens for it."""
    if await rows.find(connection, projects, id=project_id, lock=True) is None:
        raise NotFound(f"Could not find project: {project_id}.")
    if await connection.scalar(sa.select(sa.exists().where(projects.c.parent_id == project_id))):
        raise Forbidden(f"Cannot delete project {project_id}: there are projects below it.")
    await rows.remove(connection, projects, id=project_id)
    await tokens.recheck(connection)


def duplicate(kind: str, name: str) -> str:
    """What Keystone says of a name that is taken."""
    return (
        f"Conflict occurred attempting to store {kind} - Duplicate entry found with name {name} at domain ID "
        f"{domains.DOMAIN_ID}."
    )


# By its own roles or those of its groups, in the project itself or inherited from above.
_OF_USER = sa.text("""
    WITH RECURSIVE held AS (
        SELECT project_id, domain_id, inherited FROM grants
        WHERE user_id = :user_id OR group_id IN (SELECT group_id FROM group_users WHERE user_id = :user_id)
    ), below (id) AS (
        SELECT p.id FROM projects p JOIN held ON held.inherited
            AND (p.parent_id = held.project_id OR p.domain_id = held.domain_id)
        UNION
        SELECT p.id FROM projects p JOIN below ON p.parent_id = below.id
    )
    SELECT * FROM projects WHERE enabled AND domain_id IN (SELECT id FROM domains WHERE enabled) AND (
        id IN (SELECT project_id FROM role_assignments WHERE user_id = :user_id)
        OR id IN (SELECT project_id FROM held WHERE NOT inherited) OR id IN (SELECT id FROM below))
    ORDER BY name
""")
