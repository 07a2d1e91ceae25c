"""Policies as users keep them: made from a spec, renamed, deleted when no cluster uses them."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import Cloud
from roost.clusters.ids import new_id
from roost.clusters.lookup import delete_unused, find
from roost.clusters.plugins import Plugins
from roost.clusters.policies.base import Policy
from roost.clusters.spec import InvalidSpec, unwrap
from roost.config import ClusterSettings
from roost.identity.tokens import Caller
from roost.store.tables.clusters import policies

Row = sa.Row[Any]


def build(plugins: Plugins, caller: Caller, name: str, spec: Any) -> Policy:
    """The policy that a spec of the caller's means; raise `InvalidSpec`, or `ResourceNotFound` for an unknown type."""
    kind = plugins.policy(unwrap(spec).name)
    owner: dict[str, Any] = {"user": caller.user_id, "project": caller.project_id, "domain": "default"}
    return kind(name, spec, id=new_id(), **owner)


async def create(connection: AsyncConnection, policy: Policy, cloud: Cloud, settings: ClusterSettings) -> Row:
    """Keep a policy, if the cloud and the operator's settings allow what it asks for."""
    if problem := await policy.validate(cloud, settings):
        raise InvalidSpec(problem)
    row: Row = (await connection.execute(policies.insert().values(policy.to_row()).returning(policies))).one()
    return row


async def rename(connection: AsyncConnection, caller: Caller, identity: str, name: str) -> Row:
    """Give a policy another name; its spec never changes."""
    row = await find(connection, policies, "policy", identity, caller, lock=True)
    update = policies.update().where(policies.c.id == row.id).values(name=name, updated_at=sa.func.now())
    renamed: Row = (await connection.execute(update.returning(policies))).one()
    return renamed


async def delete(connection: AsyncConnection, caller: Caller, identity: str) -> None:
    """Delete a policy that is attached to no cluster."""
    await delete_unused(connection, policies, "policy", identity, caller, unless="still attached to some clusters")
