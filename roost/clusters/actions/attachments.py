"""Attach, change and detach the policies of clusters."""

import logging
from collections.abc import Awaitable, Callable, Mapping

from roost.clusters import bindings, events
from roost.clusters.actions.context import PlanningContext
from roost.clusters.actions.program import PolicyInputs
from roost.clusters.actions.work import ActionRefused, Work
from roost.clusters.bindings import Bound, Consultation, HookFailed
from roost.clusters.events import Event, Severity
from roost.clusters.ids import new_id
from roost.clusters.plugins import MissingPolicy
from roost.clusters.policies import chain
from roost.clusters.policies.base import ActionView
from roost.clusters.records import POLICIES
from roost.clusters.states import ActionName
from roost.store.tables.clusters import cluster_policies, policies

logger = logging.getLogger(__name__)


async def _attach(work: Work) -> str:
    inputs = PolicyInputs.from_json(work.inputs)
    return await attach(work, inputs.policy_id, inputs.enabled is not False)


async def attach(work: Work, policy_id: str, enabled: bool = True) -> str:
    """Have a policy govern the cluster of the action; what was done, or `ActionRefused`."""
    context = await work.engine.journal.context(work)
    async with work.engine.database.begin() as connection:
        found = await POLICIES.read(connection, policies.c.id == policy_id)
    if not found:
        raise ActionRefused(f"The specified policy '{policy_id}' could not be found.")
    if any(one.binding.policy.id == policy_id for one in context.bound):
        return "Policy already attached."
    policy = work.engine.plugins.restore_policy(found[0])
    await context.all_members()
    view = await context.view()
    refusals = chain.fit(policy, view.cluster, [one.policy for one in context.bound]).refusals
    if refusals:
        raise ActionRefused(" ".join(refusals))
    try:
        ok, answer = await bindings.call(policy, policy.attach, view)
        kept = bindings.as_json(answer or {}, "the binding") if ok else {}
        bindings.check_effects(view.effects)
    except HookFailed as failure:
        raise ActionRefused(f"Failed policy '{policy.name}': {failure}") from None
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
                data=kept,
            )
        )
        await bindings.write_down(connection, view.cluster.id, Consultation(effects=view.effects), policy)
    return "Policy attached."


async def _detach(work: Work) -> str:
    context = await work.engine.journal.context(work)
    one = _bound(context)
    if isinstance(one.policy, MissingPolicy):
        async with work.write() as connection:
            await connection.execute(cluster_policies.delete().where(cluster_policies.c.id == one.binding.id))
            await events.record(connection, [_skipped(work, one.policy.sentence)])
        return f"Policy detached. {one.policy.left_over}"
    view = await context.view()
    try:
        ok, answer = await _call_detach(one, view)
    except HookFailed as failure:
        raise ActionRefused(f"Failed policy '{one.policy.name}': {failure}") from None
    if not ok:
        raise ActionRefused(str(answer))
    async with work.write() as connection:
        await connection.execute(cluster_policies.delete().where(cluster_policies.c.id == one.binding.id))
        await bindings.write_down(connection, context.cluster.id, Consultation(effects=view.effects), one.policy)
    return "Policy detached."


async def _update(work: Work) -> str:
    one = _bound(await work.engine.journal.context(work))
    enabled = PolicyInputs.from_json(work.inputs).enabled
    if enabled is not None:
        async with work.write() as connection:
            change = cluster_policies.update().where(cluster_policies.c.id == one.binding.id)
            await connection.execute(change.values(enabled=enabled))
    return "Policy updated."


def _bound(context: PlanningContext) -> Bound:
    policy_id = PolicyInputs.from_json(context.work.inputs).policy_id
    for one in context.bound:
        if one.binding.policy.id == policy_id:
            return one
    raise ActionRefused(f"The policy '{policy_id}' is not attached to the specified cluster '{context.cluster.id}'.")


async def _call_detach(one: Bound, view: ActionView) -> tuple[bool, object]:
    view.binding, view.last_op = one.binding.data, one.binding.last_op
    ok, answer = await bindings.call(one.policy, one.policy.detach, view)
    bindings.check_effects(view.effects)
    return ok, answer


async def let_go(work: Work, one: Bound, view: ActionView) -> Event | None:
    """Detach a policy from a cluster that is being deleted. What cannot be undone is recorded as an event, and does not
    stop the deletion."""
    if isinstance(one.policy, MissingPolicy):
        return _skipped(work, f"{one.policy.sentence} {one.policy.left_over}")
    try:
        ok, answer = await _call_detach(one, view)
    except HookFailed as failure:
        ok, answer = False, failure
    if ok:
        return None
    logger.warning("a policy could not be detached", extra={"policy": one.policy.type, "reason": str(answer)})
    return _skipped(work, f"The policy '{one.policy.name}' could not be detached: {answer}")


def _skipped(work: Work, reason: str) -> Event:
    return work.event("skipped", reason, Severity.WARN)


HANDLERS: Mapping[ActionName, Callable[[Work], Awaitable[str]]] = {
    ActionName.CLUSTER_ATTACH_POLICY: _attach,
    ActionName.CLUSTER_DETACH_POLICY: _detach,
    ActionName.CLUSTER_UPDATE_POLICY: _update,
}
