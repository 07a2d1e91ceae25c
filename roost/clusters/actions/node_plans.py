"""The plan of an action on a single node, for the node and for the cluster that it may be in."""

from dataclasses import replace

from roost.clusters.actions.cluster_plans import placements, recovery
from roost.clusters.actions.context import PlanningContext
from roost.clusters.actions.program import ActionPlan, NodeInputs, NodeStep, Program
from roost.clusters.actions.work import ActionRefused
from roost.clusters.policies.decisions import Place
from roost.clusters.states import ActionName


async def plan(context: PlanningContext) -> ActionPlan:
    """One step: the action itself."""
    work = context.work
    if context.node is None and work.action != ActionName.NODE_DELETE:
        raise ActionRefused(f"The node '{work.target}' could not be found.")
    inputs, program, wait = NodeInputs.from_json(work.inputs), Program(keep_desired=True, total=1), 0.0
    if work.action is ActionName.NODE_RECOVER:
        inputs = recovery(inputs, work.decisions)
    if work.action in (ActionName.NODE_RECOVER, ActionName.NODE_CREATE) and context.found is not None:
        place = next(placements(work.decisions))
        inputs = replace(inputs, placement=place if place != Place() else None)
    if context.found is not None and work.action is ActionName.NODE_CREATE:
        context.check_size(context.count)  # it is a member from the beginning
        program = replace(program, desired=context.cluster.desired_capacity + 1)
    if context.found is not None and work.action is ActionName.NODE_DELETE:
        program, wait = _leave(context, program)
    step = NodeStep(work.id, work.action, work.target, 0, inputs, program.hooks is not None)
    return ActionPlan(replace(program, inputs=inputs), (step,), wait=wait)


def _leave(context: PlanningContext, program: Program) -> tuple[Program, float]:
    decided = context.work.decisions
    if decided.deletion.reduce_desired_capacity:
        context.check_size(context.count - 1)
        program = replace(program, desired=max(context.cluster.desired_capacity - 1, 0))
    if decided.hooks is None or decided.hooks.timeout is None:
        return program, decided.deletion.grace_period
    return replace(program, hooks=decided.hooks), max(decided.deletion.grace_period, decided.hooks.timeout)
