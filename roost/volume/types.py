"""Volume types, and which projects may use those that are not for all."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.errors import Conflict, Invalid, NotFound
from roost.store import rows
from roost.store.tables.volume import volume_type_projects, volume_types
from roost.volume.volumes import DEFAULT_TYPE, VolumeOwner


async def index(connection: AsyncConnection, owner: VolumeOwner, public: bool | None = None) -> Sequence[Any]:
    """The types that the owner may use: all, or those that are public or not."""
    query = sa.select(volume_types).where(owner.sees_type()).order_by(volume_types.c.created_at, volume_types.c.id)
    if public is not None:
        query = query.where(volume_types.c.is_public.is_(public))
    return (await connection.execute(query)).all()


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> Any:
    """Add a type."""
    taken = Conflict(f"Volume Type {values['name']} already exists.")
    return await rows.add(connection, volume_types, values, taken)


async def change(connection: AsyncConnection, row: Any, values: Mapping[str, Any]) -> Any:
    """Change a type."""
    if row.name == DEFAULT_TYPE and values.keys() & {"name", "is_public"}:
        raise Invalid(f"The type {DEFAULT_TYPE} keeps its name, and is for all projects.")
    taken = Conflict(f"Volume Type {values.get('name')} already exists.")
    return await rows.change(connection, volume_types, values, taken, id=row.id)


async def delete(connection: AsyncConnection, row: Any) -> None:
    """Delete a type that no volume has."""
    if row.name == DEFAULT_TYPE:
        raise Invalid(f"The type {DEFAULT_TYPE} is one that every Roost has, and stays.")
    await rows.remove(connection, volume_types, Invalid("Target volume type is still in use."), id=row.id)


async def projects_of(connection: AsyncConnection, row: Any) -> list[str]:
    """The projects that may use a private type."""
    if row.is_public:
        raise NotFound("Access list not available for public volume types.")
    found = await rows.index(connection, volume_type_projects, "project_id", volume_type_id=row.id)
    return [each.project_id for each in found]


async def allow(connection: AsyncConnection, row: Any, project_id: str) -> None:
    """Let a project use a private type."""
    taken = Conflict(f"Volume type access for {row.id} / {project_id} combination already exists.")
    await rows.add(connection, volume_type_projects, _access(row, project_id), taken)


async def disallow(connection: AsyncConnection, row: Any, project_id: str) -> None:
    """Stop a project from using a private type."""
    if not await rows.remove(connection, volume_type_projects, **_access(row, project_id)):
        raise NotFound(f"Volume type access not found for {row.id} / {project_id} combination.")


def _access(row: Any, project_id: str) -> dict[str, Any]:
    if row.is_public:
        raise Invalid("Type access modification is not applicable to public volume type.")
    return {"volume_type_id": row.id, "project_id": project_id}
