"""Policies come to clusters, change, and go."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import bindings, state
from roost.clusters.actions.work import ActionRefused, Work
from roost.clusters.bindings import Bound, Consultation
from roost.clusters.ids import new_id
from roost.clusters.policies import chain
from roost.clusters.policies.base import ActionView
from roost.clusters.states import ActionName
from roost.store.database import now
from roost.store.tables.clusters import cluster_policies, clusters, policies

logger = logging.getLogger(__name__)


async def _attach(work: Work) -> str:
    return await attach(work, work.inputs["policy_id"], work.inputs.get("enabled", True))


async def attach(work: Work, policy_id: str, enabled: bool = True) -> str:
    """Have a policy govern the cluster of the action; what was done, or `Refused`."""
    async with work.engine.database.begin() as connection:
        view, bound = await _scene(work, connection)
        query = sa.select(policies).where(policies.c.id == policy_id)
        row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise ActionRefused(f"The specified policy '{policy_id}' could not be found.")
    if any(one.binding.policy["id"] == row.id for one in bound):
        return "Policy already attached."
    policy = work.engine.plugins.restore_policy(row._asdict())
    refusals = chain.fit(policy, view.cluster, [one.policy for one in bound]).refusals
    if refusals:
        raise ActionRefused(" ".join(refusals))
    ok, answer = await _answered(policy.attach(view.cluster.id, view))
    if not ok:
        raise ActionRefused(str(answer))
    async with work.write() as connection:
        await connection.execute(
            cluster_policies.insert().values(
                id=new_id(),
                cluster_id=view.cluster.id,
                policy_id=policy.id,
                enabled=enabled,
                priority=policy.PRIORITY,
                data=answer or {},
            )
        )
        await bindings.write_down(connection, view.cluster.id, Consultation(effects=view.effects), policy)
    return "Policy attached."


async def _detach(work: Work) -> str:
    async with work.engine.database.begin() as connection:
        view, bound = await _scene(work, connection)
    one = _bound(bound, work)
    ok, answer = await _answered(_bound_view(one, view))
    if not ok:
        raise ActionRefused(str(answer))
    async with work.write() as connection:
        await connection.execute(cluster_policies.delete().where(cluster_policies.c.id == one.binding.id))
        await bindings.write_down(connection, view.cluster.id, Consultation(effects=view.effects), one.policy)
    return "Policy detached."


async def _update(work: Work) -> str:
    async with work.engine.database.begin() as connection:
        _, bound = await _scene(work, connection)
    one = _bound(bound, work)
    if work.inputs.get("enabled") is not None:
        async with work.write() as connection:
            change = cluster_policies.update().where(cluster_policies.c.id == one.binding.id)
            await connection.execute(change.values(enabled=work.inputs["enabled"]))
    return "Policy updated."


def _bound(bound: list[Bound], work: Work) -> Bound:
    for one in bound:
        if one.binding.policy["id"] == work.inputs["policy_id"]:
            return one
    raise ActionRefused(
        f"The policy '{work.inputs['policy_id']}' is not attached to the specified cluster '{work.cluster_id}'."
    )


def _bound_view(one: Bound, view: ActionView) -> Any:
    view.binding, view.last_op = one.binding.data, one.binding.last_op
    return one.policy.detach(view.cluster.id, view)


async def let_go(one: Bound, view: ActionView) -> None:
    """Detach a policy from a cluster that goes: what cannot be undone is noted, and does not keep the cluster."""
    try:
        ok, answer = await _answered(_bound_view(one, view))
    except Exception:
        logger.exception("a policy could not be detached", extra={"policy": one.policy.type})
        return
    if not ok:
        logger.warning("a policy could not be detached", extra={"policy": one.policy.type, "reason": str(answer)})


async def _answered(answer: Any) -> tuple[bool, Any]:
    verdict = await answer if inspect.isawaitable(answer) else answer
    return bool(verdict[0]), verdict[1]


async def _scene(work: Work, connection: AsyncConnection) -> tuple[ActionView, list[Bound]]:
    query = sa.select(clusters).where(clusters.c.id == work.cluster_id)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise ActionRefused(f"The cluster '{work.target}' could not be found.")
    bound = bindings.chain(await state.bindings(connection, row.id), work.engine.plugins.restore_policy)
    members = await state.members(connection, row.id)
    ids = {row.profile_id, *(node.profile_id for node in members)}
    view = ActionView(
        action=work.action,
        cluster=state.cluster_view(row, members, await state.profile_rows(connection, list(ids))),
        cloud=work.cloud_of(row.project_id, row.user_id),
        now=await now(connection),
        id=work.id,
        inputs=work.inputs,
        data=work.data,
        is_admin=work.owner.is_admin,
        max_nodes=work.engine.settings.max_nodes,
    )
    return view, bound


HANDLERS: Mapping[str, Callable[[Work], Awaitable[str]]] = {
    ActionName.CLUSTER_ATTACH_POLICY: _attach,
    ActionName.CLUSTER_DETACH_POLICY: _detach,
    ActionName.CLUSTER_UPDATE_POLICY: _update,
}
