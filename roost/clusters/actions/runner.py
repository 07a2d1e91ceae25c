"""How an action is carried out: taken up, planned, done step by step, and ended, each in a transaction of its own.

Whatever happens in between, the rows say what is left to do, and whoever takes the action up next goes on from there.
An action's end is one transaction: its status, its cluster's, and the release of what it held become visible together.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from prometheus_client import Counter
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import bindings, events, sizes, state
from roost.clusters.actions import (
    attachments,
    cluster_plans,
    hooks,
    node_plans,
    queue,
    requests,
    steps,
)
from roost.clusters.actions.work import (
    CANCELLED,
    FAILED,
    SUCCEEDED,
    SUSPEND,
    ActionPlan,
    ActionRefused,
    Engine,
    Interrupted,
    Superseded,
    Work,
    insert_steps,
)
from roost.clusters.policies.base import AFTER, BEFORE, ActionView
from roost.clusters.states import ActionName
from roost.store.database import now, worth_retrying
from roost.store.tables.clusters import actions, clusters, nodes, unfinished

logger = logging.getLogger(__name__)

ENDED = Counter("roost_actions_ended", "Actions on clusters and nodes that ended, by how.", ["action", "status"])

_BUSY_NODES = {
    ActionName.NODE_DELETE: "DELETING",
    ActionName.NODE_UPDATE: "UPDATING",
    ActionName.NODE_RECOVER: "RECOVERING",
    ActionName.NODE_OPERATION: "OPERATING",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How an action ended."""

    status: str
    reason: str


async def carry_out(engine: Engine, action_id: str) -> None:
    """Do what is left to do of an action, if it is its turn."""
    work = await take_up(engine, action_id)
    if work is None:
        return
    try:
        ending = await _attempt(work)
        if ending is not None:
            await end(work, ending)
    except Superseded:
        logger.warning("another engine has taken over", extra={"action": action_id})
        await steps.clear_away(work)
    except sa.exc.OperationalError as error:
        if not worth_retrying(error):
            raise  # the database is gone; whoever has it back first finds the action in it
        async with engine.database.begin() as connection:
            await queue.enqueue(connection, [action_id])


async def _attempt(work: Work) -> Ending | None:
    """How the action ended; None if it waits."""
    try:
        async with asyncio.timeout(max(work.seconds_left, 0.0)):
            return await _perform(work)
    except TimeoutError:
        return Ending(FAILED, f"{work.label} timeout.")
    except ActionRefused as refusal:
        return Ending(FAILED, str(refusal))
    except Interrupted as interruption:
        if interruption.signal == SUSPEND:
            await _suspend(work)
            return None
        return Ending(CANCELLED, f"{work.label} cancelled.")
    except (Superseded, sa.exc.OperationalError):
        raise
    except Exception as error:
        logger.exception("an action failed unexpectedly", extra={"action": work.id})
        return Ending(FAILED, f"{work.label} failed unexpectedly: {type(error).__name__}: {error}")


async def take_up(engine: Engine, action_id: str) -> Work | None:
    """Begin an attempt; None if the action has ended, is suspended, or others come first."""
    async with engine.database.begin() as connection:
        query = sa.select(actions).where(actions.c.id == action_id, unfinished, actions.c.status != "SUSPENDED")
        row = (await connection.execute(query.with_for_update())).one_or_none()
        if row is None or await _moved(connection, row) or await _others_first(connection, row):
            return None
        change = (
            actions.update()
            .where(actions.c.id == action_id)
            .values(
                attempt=actions.c.attempt + 1,
                status="RUNNING",
                status_reason="The action is being processed.",
                owner=engine.id,
                start_time=sa.func.coalesce(actions.c.start_time, sa.func.now()),
                wake_at=None,
                updated_at=sa.func.now(),
            )
        )
        since_start = sa.extract("epoch", sa.func.clock_timestamp() - actions.c.start_time)
        taken = (await connection.execute(change.returning(actions, since_start.label("since_start")))).one()
        work = Work.of(engine, taken, float(taken.since_start))
        if row.start_time is None:
            await events.record(connection, [work.event("start")])
        return work


async def _moved(connection: AsyncConnection, row: sa.Row[Any]) -> bool:
    """Whether the node has joined or left a cluster since the action was accepted: then it waits for another lock."""
    if row.target == row.cluster_id or row.plan is not None:
        return False
    node = (await connection.execute(sa.select(nodes.c.cluster_id).where(nodes.c.id == row.target))).one_or_none()
    if node is None or node.cluster_id == row.cluster_id:
        return False
    now = {"cluster_id": node.cluster_id, "lock": node.cluster_id or row.target}
    await connection.execute(actions.update().where(actions.c.id == row.id).values(**now))
    await queue.enqueue(connection, [row.id])
    return True


async def _others_first(connection: AsyncConnection, row: sa.Row[Any]) -> bool:
    """Whether an older action holds the same lock, or an action on a cluster is at work on this very node."""
    older = sa.and_(actions.c.lock == row.lock, actions.c.sequence < row.sequence, actions.c.parent_id.is_(None))
    at_it = sa.and_(actions.c.target == row.target, actions.c.parent_id.is_not(None), actions.c.parent_id != row.id)
    for others in (older, at_it):
        if await connection.scalar(sa.select(actions.c.id).where(others, unfinished).limit(1)) is not None:
            return True
    return False


async def _suspend(work: Work) -> None:
    async with work.write() as connection:
        await connection.execute(
            actions.update()
            .where(actions.c.id == work.id)
            .values(status="SUSPENDED", status_reason="The action is suspended.", owner=None, control=None)
        )


async def _perform(work: Work) -> Ending | None:
    work.check_signal()
    if work.action in attachments.HANDLERS:
        return Ending(SUCCEEDED, await attachments.HANDLERS[work.action](work))
    if work.plan is None:
        await _plan(work)
    if not await steps.carry_out(work):
        return None
    return await _conclude(work)


# Planning


async def _plan(work: Work) -> None:
    """Ask the policies, decide, and write the plan down. A new cluster first gets the policies that it was given."""
    if work.action == ActionName.CLUSTER_CREATE:
        for policy_id in work.inputs.get("policies") or ():
            await attachments.attach(work, policy_id)
    async with work.engine.database.begin() as connection:
        scene = await planning_context(work, connection)
    if scene is not None and any(one.wants(BEFORE, work.action) for one in scene.bound):
        await _consult(work, scene)
    async with work.write() as connection:
        if not work.on_cluster:
            plan = await node_plans.plan(work, connection)
        elif scene is None:
            raise ActionRefused(f"The cluster '{work.target}' could not be found.")
        else:
            scene.connection = connection
            plan = await cluster_plans.PLANNERS[work.action](scene)
        if scene is not None and work.action != ActionName.CLUSTER_DELETE:
            plan.more["ask_after"] = any(one.wants(AFTER, work.action) for one in scene.bound)
        await _write_plan(connection, work, plan)
    hooks.send(work, plan)


async def planning_context(work: Work, connection: AsyncConnection) -> cluster_plans.PlanningContext | None:
    """The cluster that the action is about, or that its node is in; None if there is none."""
    row = await state.cluster_row(connection, work.cluster_id) if work.cluster_id else None
    if row is None:
        return None
    bound = bindings.chain(await state.bindings(connection, row.id), work.engine.plugins.restore_policy)
    members = await state.members(connection, row.id) if bound else None
    count = len(members) if members is not None else await state.count_members(connection, row.id)
    return cluster_plans.PlanningContext(work, connection, row, bound, members, count)


async def _consult(work: Work, scene: cluster_plans.PlanningContext) -> None:
    view = await view_of(work, scene)
    result = await bindings.consult(scene.bound, BEFORE, view)
    work.data = view.data
    async with work.write() as connection:
        await bindings.write_down(connection, scene.cluster.id, result)
        await connection.execute(actions.update().where(actions.c.id == work.id).values(data=work.data))
    if result.refusal is not None:
        prefix = "Policy check failure" if work.on_cluster else "Policy check"
        raise ActionRefused(f"{prefix}: {result.refusal}")


async def view_of(work: Work, scene: cluster_plans.PlanningContext, *, succeeded: bool = True) -> ActionView:
    """The action as policies see it."""
    members = scene.members or ()
    async with work.engine.database.begin() as connection:
        ids = {scene.cluster.profile_id, *(node.profile_id for node in members)}
        profiles = await state.profile_rows(connection, list(ids))
        node = None if work.on_cluster else (await state.nodes_by_id(connection, [work.target])).get(work.target)
        moment = await now(connection)
    cluster = state.cluster_view(scene.cluster, members, profiles)
    return ActionView(
        action=work.action,
        cluster=cluster,
        cloud=work.cloud_of(scene.cluster.project_id, scene.cluster.user_id),
        now=moment,
        id=work.id,
        inputs=work.inputs,
        data=work.data,
        node=node,
        node_profile=cluster.profiles.get(node.profile_id) if node else None,
        is_admin=work.owner.is_admin,
        succeeded=succeeded,
        max_nodes=work.engine.settings.max_nodes,
    )


async def _write_plan(connection: AsyncConnection, work: Work, plan: ActionPlan) -> None:
    work.plan = plan.to_json()
    work.steps = plan.steps
    if plan.wait > 0:
        work.plan["not_before"] = (await now(connection) + timedelta(seconds=plan.wait)).isoformat()
    work.outputs |= {"nodes_done": 0, "nodes_total": len(plan.steps)}
    await connection.execute(
        actions.update().where(actions.c.id == work.id).values(plan=work.plan, data=work.data, outputs=work.outputs)
    )
    await _insert_nodes(connection, work, plan)
    if work.on_cluster:
        await insert_steps(connection, work, plan.steps)
    for action, status in _BUSY_NODES.items():
        busy = [step.node_id for step in plan.steps if step.action == action]
        if busy:
            await connection.execute(
                nodes.update().where(nodes.c.id == sa.any_(sa.bindparam("ids", busy))).values(status=status)
            )
    columns = dict(plan.at_once)
    if plan.busy is not None:
        columns |= {"status": plan.busy, "status_reason": f"{work.label} is at work."}
    if columns and work.cluster_id:
        await connection.execute(clusters.update().where(clusters.c.id == work.cluster_id).values(**columns))
    if plan.more.get("hooks"):
        await events.record(connection, steps.hook_events(work, plan))


async def _insert_nodes(connection: AsyncConnection, work: Work, plan: ActionPlan) -> None:
    if not plan.new_nodes:
        return
    owner = sa.select(clusters.c.user_id, clusters.c.project_id, clusters.c.domain_id)
    row = (await connection.execute(owner.where(clusters.c.id == work.cluster_id))).one()
    values = {
        "rows": plan.new_nodes,
        "cluster_id": work.cluster_id,
        "user_id": row.user_id,
        "project_id": row.project_id,
        "domain_id": row.domain_id,
    }
    await connection.execute(_INSERT_NODES, values)


_INSERT_NODES = sa.text(
    """
    INSERT INTO nodes (id, name, profile_id, cluster_id, index, data, status, status_reason,
                       user_id, project_id, domain_id)
    SELECT given.id, given.name, given.profile_id, :cluster_id, given.index, given.data, 'CREATING',
           'Creation in progress', :user_id, :project_id, :domain_id
    FROM jsonb_to_recordset(:rows) AS given(id text, name text, profile_id text, index integer, data jsonb)
    """
).bindparams(sa.bindparam("rows", type_=JSONB))


# Ending


async def _conclude(work: Work) -> Ending:
    """What it all came to, read from the steps."""
    assert work.plan is not None
    async with work.engine.database.begin() as connection:
        report = work.report = await steps.report(connection, work)
    if work.plan.get("undo_failures") and report.unmade:
        await steps.forget_unmade(work, report.unmade)
    failures = report.failures
    if not failures:
        return Ending(SUCCEEDED, "Action completed successfully.")
    if not work.on_cluster:
        return Ending(FAILED, failures[0][1])
    told = "; ".join(f"{name}: {reason}" for name, reason in failures[:5])
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    total = work.plan.get("total") or 1
    return Ending(FAILED, f"{work.label} failed: {len(failures)} of {total} nodes: {told}{more}")


async def end(work: Work, ending: Ending) -> None:
    """Ask the policies once more, then end the action and let the next one begin, all at once."""
    consulted = await _consult_after(work, ending.status == SUCCEEDED)
    if consulted is not None and consulted.refusal is not None and ending.status == SUCCEEDED:
        ending = Ending(FAILED, f"Policy check failure: {consulted.refusal}")
    detached = await _detach_all(work, ending)
    async with work.write() as connection:
        if consulted is not None and work.cluster_id:
            await bindings.write_down(connection, work.cluster_id, consulted)
        if work.report is None:
            # It ended before all was done.
            await steps.close(connection, work, ending.status, ending.reason)
            work.report = await steps.report(connection, work)
        work.outputs |= work.report.outputs()
        await _settle(connection, work, ending, detached)
        await connection.execute(
            actions.update()
            .where(actions.c.id == work.id)
            .values(
                status=ending.status,
                status_reason=ending.reason,
                end_time=sa.func.clock_timestamp(),
                owner=None,
                control=None,
                wake_at=None,
                data=work.data,
                outputs=work.outputs,
            )
        )
        level = events.INFO if ending.status == SUCCEEDED else events.ERROR
        phase = "end" if ending.status == SUCCEEDED else "error"
        await events.record(connection, [work.event(phase, ending.reason, level), *work.report.events(work)])
        await requests.follow(connection, work.lock)
    ENDED.labels(work.action, ending.status).inc()


async def _consult_after(work: Work, succeeded: bool) -> bindings.Consultation | None:
    if work.plan is None or not work.plan.get("ask_after"):
        return None
    async with work.engine.database.begin() as connection:
        scene = await planning_context(work, connection)
        report = work.report or await steps.report(connection, work)
    if scene is None:
        return None
    made = [work.target] if work.action == ActionName.NODE_CREATE else report.outputs().get("nodes_added")
    if made:
        work.data["creation"] = {**(work.data.get("creation") or {}), "nodes": made}
    view = await view_of(work, scene, succeeded=succeeded)
    view.data.update(status="NONE", reason="")
    result = await bindings.consult(scene.bound, AFTER, view)
    work.data = view.data
    return result


async def _detach_all(work: Work, ending: Ending) -> bool:
    """Let go of the policies of a cluster whose nodes are all gone, before its row goes."""
    if work.action != ActionName.CLUSTER_DELETE or ending.status != SUCCEEDED or not work.cluster_id:
        return False
    async with work.engine.database.begin() as connection:
        scene = await planning_context(work, connection)
    if scene is not None:
        view = await view_of(work, scene)
        for one in scene.bound:
            await attachments.let_go(one, view)
    return True


async def _settle(connection: AsyncConnection, work: Work, ending: Ending, gone: bool) -> None:
    """Bring the cluster's size and status in line with what its nodes are now."""
    if not work.cluster_id:
        return
    if gone:
        await connection.execute(clusters.delete().where(clusters.c.id == work.cluster_id))
        return
    row = await state.cluster_row(connection, work.cluster_id, lock=True)
    if row is None:
        return
    if work.plan is None and row.status not in ("INIT", "CREATING"):
        return  # nothing was done, so nothing is to be said of the cluster
    count = sa.func.count()
    counts = sa.select(
        count.filter(nodes.c.status == "ACTIVE").label("active"),
        count.filter(nodes.c.physical_id.is_not(None)).label("made"),
    )
    counted = (await connection.execute(counts.where(nodes.c.cluster_id == row.id))).one()
    change = _changed_columns(work, ending, row, counted.made)
    bounds = sizes.Sizes(*(change.get(key, getattr(row, key)) for key in ("min_size", "max_size", "desired_capacity")))
    change["status"], change["status_reason"] = state.health_of(bounds, counted.active, work.action)
    await connection.execute(clusters.update().where(clusters.c.id == row.id).values(**change))


def _changed_columns(work: Work, ending: Ending, row: sa.Row[Any], made: int) -> dict[str, Any]:
    plan: Mapping[str, Any] = work.plan or {}
    change: dict[str, Any] = {"updated_at": sa.func.now()}
    if work.action == ActionName.CLUSTER_CREATE and row.created_at is None:
        change["created_at"] = sa.func.now()
    if ending.status == SUCCEEDED:
        change |= plan.get("change") or {}
        if plan.get("desired") is not None:
            change["desired_capacity"] = plan["desired"]
    elif plan.get("desired") is not None and not plan.get("keep_desired"):
        # As large as it came to be: what could not be made is not asked for any longer.
        change["desired_capacity"] = made
    return change
