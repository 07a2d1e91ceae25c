"""How an action is carried out: planned, done step by step, and ended, each in its own transaction.

Whatever happens in between, the rows say what is left to do, and the next engine that claims the action goes on from
there. An action's end is one transaction: its status, its cluster's, and the release of what it held become visible
together.
"""

import asyncio
import logging
from dataclasses import replace

import sqlalchemy as sa
from prometheus_client import Counter

from roost import traces
from roost.clusters import bindings
from roost.clusters.actions import attachments, cluster_plans, hooks, leftovers, node_plans, steps
from roost.clusters.actions.context import PlanningContext
from roost.clusters.actions.journal import Ended, Ending, Planned
from roost.clusters.actions.program import ActionPlan, CreateInputs
from roost.clusters.actions.work import ActionRefused, Interrupted, Superseded, Work
from roost.clusters.events import Event
from roost.clusters.policies.base import AFTER, BEFORE, CREATION_NODES
from roost.clusters.states import ActionName, ActionStatus, Signal
from roost.clusters.stored import MalformedData
from roost.store.tables.clusters import actions

logger = logging.getLogger(__name__)

ENDED = Counter("roost_actions_ended", "Actions on clusters and nodes that ended, by how.", ["action", "status"])


async def carry_out(work: Work) -> None:
    """Do what is left to do of an action that this engine has claimed."""
    try:
        with traces.span(str(work.action), work.trace, action=work.id, target=work.target, attempt=work.attempt):
            ending = await _attempt(work)
            if ending is not None:
                await end(work, ending)
    except Superseded:
        logger.warning("another engine has taken over", extra={"action": work.id})
        await steps.clear_away(work)
        await leftovers.let_go(work.engine, work.id, work.engine.id)


async def _attempt(work: Work) -> Ending | None:
    """How the action ended; None if it waits."""
    try:
        async with asyncio.timeout(max(work.seconds_left, 0.0)):
            return await _perform(work)
    except TimeoutError:
        return Ending(ActionStatus.FAILED, f"{work.label} timeout.")
    except (ActionRefused, MalformedData) as refusal:
        return Ending(ActionStatus.FAILED, str(refusal))
    except Interrupted as interruption:
        if interruption.signal is Signal.CANCEL:
            return Ending(ActionStatus.CANCELLED, f"{work.label} cancelled.")
        await _suspend(work)
        return None
    except (Superseded, sa.exc.OperationalError):
        raise
    except Exception as error:
        logger.exception("an action failed unexpectedly", extra={"action": work.id})
        return Ending(ActionStatus.FAILED, f"{work.label} failed unexpectedly: {type(error).__name__}: {error}")


async def _suspend(work: Work) -> None:
    async with work.write() as connection:
        await connection.execute(
            actions.update()
            .where(actions.c.id == work.id)
            .values(status=ActionStatus.SUSPENDED, status_reason="The action is suspended.", owner=None, control=None)
        )


async def _perform(work: Work) -> Ending | None:
    work.check_signal()
    if work.action in attachments.HANDLERS:
        return Ending(ActionStatus.SUCCEEDED, await attachments.HANDLERS[work.action](work))
    context = await _plan(work) if work.program is None else await work.engine.journal.context(work)
    if not await steps.carry_out(work, context):
        return None
    return await _conclude(work, context)


# Planning


async def _plan(work: Work) -> PlanningContext:
    """Ask the policies, decide, and write the plan down. A new cluster first gets the policies that it was given."""
    if work.action is ActionName.CLUSTER_CREATE:
        for policy_id in CreateInputs.from_json(work.inputs).policies:
            await attachments.attach(work, policy_id)
    context = await work.engine.journal.context(work)
    await _consult(work, context)
    plan = await plan_of(context)
    if work.action is not ActionName.CLUSTER_DELETE:
        after = any(one.wants(AFTER, work.action) for one in context.bound)
        plan = replace(plan, program=replace(plan.program, ask_after=after))
    await work.engine.journal.plan(Planned(work, plan, context))
    hooks.send(work, plan)
    return context


async def plan_of(context: PlanningContext) -> ActionPlan:
    """The plan of the action, after the policies have run."""
    if not context.work.action.on_cluster:
        return await node_plans.plan(context)
    context.cluster  # noqa: B018  it must still be there
    return await cluster_plans.PLANNERS[context.work.action](context)


async def _consult(work: Work, context: PlanningContext) -> None:
    if refusal := bindings.missing(context.bound, work.action):
        raise ActionRefused(refusal)
    if not any(one.wants(BEFORE, work.action) for one in context.bound):
        return
    view = await context.view()
    result = await bindings.consult(context.bound, BEFORE, view)
    work.data = view.data
    async with work.write() as connection:
        await bindings.write_down(connection, context.cluster.id, result)
        await connection.execute(actions.update().where(actions.c.id == work.id).values(data=work.data))
    if result.refusal is not None:
        prefix = "Policy check failure" if work.action.on_cluster else "Policy check"
        raise ActionRefused(f"{prefix}: {result.refusal}")


# Ending


async def _conclude(work: Work, context: PlanningContext) -> Ending:
    """The result of the action, read from its steps."""
    report = work.report = await work.engine.journal.report(work)
    if work.planned.undo_failures and report.unmade:
        await steps.forget_unmade(work, context, report.unmade)
    failures = report.failed
    if not failures:
        return Ending(ActionStatus.SUCCEEDED, "Action completed successfully.")
    if not work.action.on_cluster:
        return Ending(ActionStatus.FAILED, failures[0].reason)
    listed = "; ".join(f"{failure.name}: {failure.reason}" for failure in failures[:5])
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    total = work.planned.total or 1
    return Ending(ActionStatus.FAILED, f"{work.label} failed: {len(failures)} of {total} nodes: {listed}{more}")


async def end(work: Work, ending: Ending) -> None:
    """Ask the policies once more, then end the action and let the next one begin, all at once."""
    succeeded = ending.status is ActionStatus.SUCCEEDED
    consulted = await _consult_after(work, succeeded)
    if consulted is not None and consulted.refusal is not None and succeeded:
        ending = Ending(ActionStatus.FAILED, f"Policy check failure: {consulted.refusal}")
    gone = work.action is ActionName.CLUSTER_DELETE and succeeded
    skipped = await _detach_all(work) if gone else ()
    await work.engine.journal.end(Ended(work, ending, consulted, gone, tuple(skipped)))
    ENDED.labels(work.action, ending.status).inc()


async def _consult_after(work: Work, succeeded: bool) -> bindings.Consultation | None:
    if work.program is None or not work.program.ask_after:
        return None
    context = await work.engine.journal.context(work)
    if context.found is None:
        return None
    report = work.report or await work.engine.journal.report(work)
    added = report.outputs(work.outputs).nodes_added
    made = [work.target] if work.action is ActionName.NODE_CREATE else list(added)
    if made:
        CREATION_NODES.write(work.data, made)
    view = await context.view(succeeded=succeeded)
    result = await bindings.consult(context.bound, AFTER, view)
    work.data = view.data
    return result


async def _detach_all(work: Work) -> list[Event]:
    """Detach the policies of a cluster whose nodes are all gone, before its row is deleted; returns what could not be
    undone."""
    context = await work.engine.journal.context(work)
    if context.found is None or not context.bound:
        return []
    view = await context.view()
    skipped = [await attachments.let_go(work, one, view) for one in context.bound]
    return [event for event in skipped if event is not None]
