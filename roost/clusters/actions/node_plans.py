"""What an action on a single node comes to, for the node and for the cluster that it may be in."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import sizes, state
from roost.clusters.actions.cluster_plans import placements
from roost.clusters.actions.work import ActionPlan, ActionRefused, NodeStep, Work
from roost.clusters.states import ActionName
from roost.store.tables.clusters import nodes


async def plan(work: Work, connection: AsyncConnection) -> ActionPlan:
    """One step: the action itself."""
    node = (await state.nodes_by_id(connection, [work.target])).get(work.target)
    if node is None and work.action != ActionName.NODE_DELETE:
        raise ActionRefused(f"The node '{work.target}' could not be found.")
    cluster = await state.cluster_row(connection, work.cluster_id) if work.cluster_id else None
    inputs = dict(work.inputs)
    made = ActionPlan()
    if cluster is not None and work.action == ActionName.NODE_CREATE:
        await _join(work, connection, cluster, made)
    if cluster is not None and work.action == ActionName.NODE_DELETE:
        await _leave(work, connection, cluster, made)
    if work.action == ActionName.NODE_RECOVER:
        _recover(work, inputs)
    made.more |= {"inputs": inputs, "keep_desired": True}
    made.steps = [NodeStep(work.id, work.action, work.target, 0, inputs, bool(made.more.get("hooks")))]
    return made


async def _join(work: Work, connection: AsyncConnection, cluster: sa.Row[Any], made: ActionPlan) -> None:
    """A node made in a cluster is a member from the beginning: the place for it is noted, and the size follows."""
    count = await state.count_members(connection, cluster.id)
    _check_size(work, cluster, count)
    place = next(placements(work.data))
    if place:
        await connection.execute(
            nodes.update()
            .where(nodes.c.id == work.target)
            .values(data=nodes.c.data.op("||")(sa.cast({"placement": place}, nodes.c.data.type)))
        )
    made.desired = cluster.desired_capacity + 1


async def _leave(work: Work, connection: AsyncConnection, cluster: sa.Row[Any], made: ActionPlan) -> None:
    decided = work.data.get("deletion") or {}
    if decided.get("reduce_desired_capacity", True):
        count = await state.count_members(connection, cluster.id)
        _check_size(work, cluster, count - 1)
        made.desired = max(cluster.desired_capacity - 1, 0)
    made.wait = float(decided.get("grace_period") or 0)
    hooks = work.data.get("hooks") or {}
    if hooks.get("timeout") is not None:
        made.wait = max(made.wait, float(hooks["timeout"]))
        made.more["hooks"] = hooks


def _check_size(work: Work, cluster: sa.Row[Any], desired: int) -> None:
    refusal = sizes.misfit(state.sizes(cluster), desired, strict=True, max_nodes=work.engine.settings.max_nodes)
    if refusal is not None:
        raise ActionRefused(refusal)


def _recover(work: Work, inputs: dict[str, Any]) -> None:
    ways = (work.data.get("health") or {}).get("recover_action")
    if not inputs.get("operation") and ways:
        inputs |= {"operation": ways[0].get("name"), "operation_params": ways[0].get("params") or {}}
    place = next(placements(work.data))
    if place:
        inputs["placement"] = place
