"""Profiles as users keep them: made from a spec, renamed, deleted when no cluster and no node uses them."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import Cloud
from roost.clusters.errors import BadRequest
from roost.clusters.ids import new_id
from roost.clusters.lookup import delete_unused, find
from roost.clusters.plugins import Plugins
from roost.clusters.profiles.base import Profile
from roost.clusters.spec import InvalidSpec, unwrap
from roost.identity.tokens import Caller
from roost.store.tables.clusters import profiles

Row = sa.Row[Any]


def build(plugins: Plugins, caller: Caller, name: str, spec: Any, metadata: Any = None) -> Profile:
    """The profile that a spec of the caller's means; raise `InvalidSpec`, or `ResourceNotFound` for an unknown type."""
    kind = plugins.profile(unwrap(spec).name)
    owner: dict[str, Any] = {"user": caller.user_id, "project": caller.project_id, "domain": "default"}
    return kind(name, spec, id=new_id(), metadata=metadata, **owner)


async def create(connection: AsyncConnection, profile: Profile, cloud: Cloud) -> Row:
    """Keep a profile, if the cloud has what it asks for."""
    if problem := await profile.validate(cloud):
        raise InvalidSpec(problem)
    row: Row = (await connection.execute(profiles.insert().values(profile.to_row()).returning(profiles))).one()
    return row


async def update(connection: AsyncConnection, caller: Caller, identity: str, changes: Mapping[str, Any]) -> Row:
    """Change the name or the metadata of a profile; its spec never changes."""
    row = await find(connection, profiles, "profile", identity, caller, lock=True)
    values = {key: value for key, value in changes.items() if row._mapping[key] != value}
    if not values:
        raise BadRequest("No property needs an update.")
    change = profiles.update().where(profiles.c.id == row.id).values(**values, updated_at=sa.func.now())
    changed: Row = (await connection.execute(change.returning(profiles))).one()
    return changed


async def delete(connection: AsyncConnection, caller: Caller, identity: str) -> None:
    """Delete a profile that no cluster and no node refers to."""
    await delete_unused(
        connection, profiles, "profile", identity, caller, unless="still referenced by some clusters and/or nodes"
    )
