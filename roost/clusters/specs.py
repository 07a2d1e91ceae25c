"""Policies and profiles as users keep them: made from a spec, changed, and deleted when nothing uses them."""

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import Cloud
from roost.clusters import records
from roost.clusters.errors import BadRequest
from roost.clusters.ids import new_id
from roost.clusters.lookup import Resource, delete_unused, find
from roost.clusters.plugins import PACKAGE, Plugins
from roost.clusters.spec import InvalidSpec, unwrap
from roost.clusters.spec_type import SpecRow, SpecType, spec_columns
from roost.config import ClusterSettings
from roost.identity.tokens import Caller


@dataclass(frozen=True, slots=True)
class SpecNoun:
    """What is made from specs: policies, or profiles."""

    resource: Resource[SpecRow]
    keeps: str
    """The column for what is kept beside the spec."""
    unless: str
    """Why one cannot be deleted."""
    type_of: Callable[[Plugins, str], type[SpecType]]

    def build(self, plugins: Plugins, caller: Caller, name: str, spec: Any, **kept: Any) -> SpecType:
        """What a spec of the caller's means; raise `InvalidSpec`, or `ResourceNotFound` for an unknown type."""
        kind = unwrap(spec).name
        owner: dict[str, Any] = {"user": caller.user_id, "project": caller.project_id, "domain": "default"}
        if self.keeps == "data" and kind in plugins.packages:
            kept["data"] = {PACKAGE: plugins.packages[kind]}
        return self.type_of(plugins, kind)(name, spec, id=new_id(), **owner, **kept)

    async def create(self, connection: AsyncConnection, made: SpecType) -> SpecRow:
        """Keep one that was checked."""
        values = dict(zip(spec_columns(self.keeps), astuple(made.row), strict=True))
        given = {key: value for key, value in values.items() if not key.endswith("_at")}
        return await self.resource.insert(connection, given)

    async def update(
        self, connection: AsyncConnection, caller: Caller, identity: str, changes: Mapping[str, Any]
    ) -> SpecRow:
        """Change the name or the metadata; a spec never changes."""
        row = await find(connection, self.resource, identity, caller, lock=True)
        present = {"name": row.name, self.keeps: row.kept}
        values = {key: value for key, value in changes.items() if present[key] != value}
        if not values:
            raise BadRequest("No property needs an update.")
        return await self.resource.update(connection, row.id, {**values, "updated_at": sa.func.now()})

    async def delete(self, connection: AsyncConnection, caller: Caller, identity: str) -> None:
        """Delete one that nothing uses."""
        await delete_unused(connection, self.resource, identity, caller, unless=self.unless)


async def check(made: SpecType, cloud: Cloud, settings: ClusterSettings) -> None:
    """Raise `InvalidSpec` if the cloud or the operator's settings do not allow what a spec asks for."""
    if problem := await made.validate(cloud, settings):
        raise InvalidSpec(problem)


POLICIES = SpecNoun(records.POLICIES, "data", "still attached to some clusters", Plugins.policy)
PROFILES = SpecNoun(records.PROFILES, "metadata", "still referenced by some clusters and/or nodes", Plugins.profile)
