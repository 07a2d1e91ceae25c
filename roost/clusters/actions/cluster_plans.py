"""The plan of each action on a cluster: from its inputs, the decisions of policies, and the present cluster.

A planner only reads and decides. What it returns is written down before anything is done; where the action cannot be
carried out it raises `ActionRefused`, and nothing has changed.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import sizes, state
from roost.clusters.actions.context import PlanningContext
from roost.clusters.actions.program import (
    ActionPlan,
    AddInputs,
    ClusterChange,
    DeleteInputs,
    NodeInputs,
    NodeStep,
    OperateInputs,
    Program,
    RecoverInputs,
    RemoveInputs,
    ReplaceInputs,
    ScaleInputs,
    UpdateInputs,
)
from roost.clusters.actions.work import ActionRefused
from roost.clusters.ids import new_id
from roost.clusters.names import FORMAT, node_name
from roost.clusters.policies import victims
from roost.clusters.policies.base import DELETION_CANDIDATES, DELETION_COUNT, NodeView
from roost.clusters.policies.decisions import Decisions, Place
from roost.clusters.states import ActionName, ClusterStatus, NodeStatus
from roost.store.tables.clusters import nodes, profiles

Planner = Callable[[PlanningContext], Awaitable[ActionPlan]]


# Making and removing clusters


async def create(context: PlanningContext) -> ActionPlan:
    """All nodes that a new cluster should have. Those that cannot be made stay, for a recovery to make."""
    plan = grow(context, context.cluster.desired_capacity)
    program = replace(plan.program, desired=None, undo_failures=False)
    return replace(plan, program=program, busy=ClusterStatus.CREATING)


async def delete(context: PlanningContext) -> ActionPlan:
    """Every node goes, then the cluster."""
    members = await context.all_members()
    stops: list[NodeStep] = []
    if context.cluster.config.get("cluster.stop_node_before_delete"):
        stop = NodeInputs(operation="stop", best_effort=True)
        stops = [NodeStep.new(ActionName.NODE_OPERATION, node.id, 0, stop) for node in members if node.physical_id]
    inputs = NodeInputs(force=DeleteInputs.from_json(context.work.inputs).force)
    part = 1 if stops else 0
    goes = [NodeStep.new(ActionName.NODE_DELETE, node.id, part, inputs) for node in members]
    return ActionPlan(Program(), (*stops, *goes), busy=ClusterStatus.DELETING)


async def update(context: PlanningContext) -> ActionPlan:
    """New properties at once; a new profile node by node, in the batches that a policy may have set."""
    inputs = UpdateInputs.from_json(context.work.inputs)
    at_once = ClusterChange(name=inputs.name, metadata=inputs.metadata, timeout=inputs.timeout, config=inputs.config)
    plan = ActionPlan(Program(), busy=ClusterStatus.UPDATING, at_once=at_once)
    if not inputs.new_profile_id:
        return plan
    program = Program(change=ClusterChange(profile_id=inputs.new_profile_id))
    if inputs.profile_only:
        return replace(plan, program=program)
    decided = context.work.decisions.update
    members = [node.id for node in await context.all_members()]
    batches = decided.plan or (tuple(members),)
    named = set(itertools.chain.from_iterable(batches))
    batches = (*batches, tuple(node_id for node_id in members if node_id not in named))
    change = NodeInputs(new_profile_id=inputs.new_profile_id)
    inside = set(members)
    steps = tuple(
        NodeStep.new(ActionName.NODE_UPDATE, node_id, part, change)
        for part, batch in enumerate(batches)
        for node_id in batch
        if node_id in inside
    )
    return replace(plan, program=replace(program, pause=decided.pause_time), steps=steps)


# Growing and shrinking


async def scale_out(context: PlanningContext) -> ActionPlan:
    """As many new nodes as asked for."""
    count = _count(context, context.work.decisions.creation.count, "out")
    context.check_size(context.count + count)
    return grow(context, count)


async def scale_in(context: PlanningContext) -> ActionPlan:
    """As many nodes fewer as asked for; those that a policy chose, if one did."""
    decided = context.work.decisions.deletion
    count = len(decided.candidates) or min(_count(context, decided.count, "in"), context.count)
    context.check_size(context.count - count)
    return await shrink(context, count)


async def resize(context: PlanningContext) -> ActionPlan:
    """As many new nodes, or as many nodes fewer, as lead to the requested size; and the new bounds."""
    work = context.work
    wanted = sizes.resize(work.inputs, context.cluster.sizes, context.count, work.engine.settings.max_nodes)
    if isinstance(wanted, str):
        raise ActionRefused(wanted)
    if wanted.change > 0 or work.decisions.rebalance:
        plan = grow(context, wanted.change)
    elif wanted.change < 0:
        plan = await shrink(context, -wanted.change)
    else:
        plan = ActionPlan(Program(desired=wanted.desired), busy=ClusterStatus.RESIZING)
    bounds = ClusterChange(min_size=wanted.min_size, max_size=wanted.max_size)
    return replace(plan, program=replace(plan.program, change=bounds))


def _count(context: PlanningContext, decided: int | None, direction: str) -> int:
    count = ScaleInputs.from_json(context.work.inputs).count if decided is None else decided
    if count <= 0:
        raise ActionRefused(f"Invalid count ({count}) for scaling {direction}.")
    return count


def grow(context: PlanningContext, count: int, places: Iterator[Place] | None = None) -> ActionPlan:
    """That many new nodes, each in the next place that the policies gave; nodes that move elsewhere get a replacement
    before they go."""
    decided = context.work.decisions
    taken = itertools.islice(places or placements(decided), count + len(decided.rebalance))
    first = context.cluster.next_index
    new = tuple(new_node(context, first + number, place) for number, place in enumerate(taken))
    made = [NodeStep.new(ActionName.NODE_CREATE, node.id) for node in new]
    moved = [
        NodeStep.new(ActionName.NODE_DELETE, node_id, 1, NodeInputs(replaced_by=successor.id))
        for node_id, successor in zip(decided.rebalance, new[count:], strict=True)
    ]
    return ActionPlan(
        Program(desired=context.count + count, undo_failures=True),
        (*made, *moved),
        new_nodes=new,
        busy=ClusterStatus.RESIZING,
        at_once=ClusterChange(next_index=first + len(new)),
    )


def placements(decided: Decisions) -> Iterator[Place]:
    """Where each new node goes: first what was decided for it alone, then the next place in the plan of zones and
    regions; nowhere in particular when these are used up."""
    single = iter(decided.placement.placements)
    zones, regions = _expanded(decided.creation.zones), _expanded(decided.creation.regions)
    while True:
        region, zone, own = next(regions, None), next(zones, None), next(single, Place())
        yield Place(own.region_name or region, own.zone or zone, own.servergroup)


def _expanded(plan: Mapping[str, int]) -> Iterator[str]:
    return itertools.chain.from_iterable(itertools.repeat(name, number) for name, number in plan.items())


def new_node(context: PlanningContext, index: int, place: Place) -> NodeView:
    """A node to be made in the cluster."""
    placement = place.to_json()
    return NodeView(
        id=new_id(),
        name=node_name(context.cluster.config.get(FORMAT), index),
        index=index,
        role="",
        status=NodeStatus.CREATING,
        created_at=None,
        profile_id=context.cluster.profile_id,
        physical_id=None,
        tainted=False,
        data={"placement": placement} if placement else {},
    )


async def shrink(context: PlanningContext, count: int) -> ActionPlan:
    """That many nodes go: those that the policies chose, else unhealthy ones first."""
    decided = context.work.decisions.deletion
    chosen = list(decided.candidates) or await choose(context, count)
    DELETION_COUNT.write(context.work.data, len(chosen))
    DELETION_CANDIDATES.write(context.work.data, chosen)
    return leave(context, chosen, destroy=decided.destroy_after_deletion is not False)


async def choose(context: PlanningContext, count: int) -> list[str]:
    """Victims, where no policy chose them: from each zone or region as many as planned, unhealthy ones first."""
    decided = context.work.decisions.deletion
    by = victims.order(victims.RANDOM, {}, context.work.id)
    members = await context.all_members()
    return [node.id for node in victims.select(members, count, by, decided.regions, decided.zones)]


def leave(context: PlanningContext, node_ids: Sequence[str], *, destroy: bool) -> ActionPlan:
    """These nodes go, after the time and the hooks that a policy set, and the cluster is smaller by their number."""
    decided = context.work.decisions
    action = ActionName.NODE_DELETE if destroy else ActionName.NODE_LEAVE
    steps = tuple(NodeStep.new(action, node_id) for node_id in node_ids)
    wait, hooks = decided.deletion.grace_period, decided.hooks
    if hooks is not None and hooks.timeout is not None:
        alive = {node.id for node in context.members or () if node.status == NodeStatus.ACTIVE and node.physical_id}
        steps = tuple(replace(step, waiting=step.node_id in alive) for step in steps)
        wait = max(wait, hooks.timeout) if any(step.waiting for step in steps) else wait
    else:
        hooks = None
    program = Program(desired=context.count - len(node_ids), hooks=hooks)
    return ActionPlan(program, steps, busy=ClusterStatus.RESIZING, wait=wait)


# Members that come and go by name


async def add_nodes(context: PlanningContext) -> ActionPlan:
    """Add nodes that were in no cluster."""
    given = AddInputs.from_json(context.work.inputs).nodes
    await _refuse_strangers(context, given)
    context.check_size(context.count + len(given))
    return _joining(context, given, desired=context.count + len(given), busy=ClusterStatus.RESIZING)


def _joining(context: PlanningContext, node_ids: Iterable[str], desired: int | None, busy: ClusterStatus) -> ActionPlan:
    first = context.cluster.next_index
    steps = tuple(
        NodeStep.new(ActionName.NODE_JOIN, node_id, 0, NodeInputs(cluster_id=context.cluster.id, index=first + number))
        for number, node_id in enumerate(node_ids)
    )
    next_index = ClusterChange(next_index=first + len(steps))
    return ActionPlan(Program(desired=desired), steps, busy=busy, at_once=next_index)


async def _refuse_strangers(context: PlanningContext, given: Sequence[str]) -> None:
    async with context.reading() as connection:
        problem = await why_not_joinable(connection, context.cluster.profile_id, given)
    if problem:
        raise ActionRefused(problem)


async def why_not_joinable(
    connection: AsyncConnection, profile_id: str, given: Sequence[str], unknown: Sequence[str] = ()
) -> str | None:
    """Why some of these nodes cannot join a cluster of this profile, if they cannot. Those unknown to the caller may
    exist in another project, so they are not looked up."""
    query = (
        sa.select(nodes.c.id, nodes.c.cluster_id, nodes.c.status, profiles.c.type)
        .join(profiles, profiles.c.id == nodes.c.profile_id)
        .where(state.among(nodes.c.id, given))
    )
    rows = (await connection.execute(query)).all()
    kind = await connection.scalar(sa.select(profiles.c.type).where(profiles.c.id == profile_id))
    found = {row.id for row in rows}
    owned = [row.id for row in rows if row.cluster_id is not None]
    idle = [row.id for row in rows if row.status != NodeStatus.ACTIVE]
    other = [row.id for row in rows if row.type != kind]
    missing = [*(node_id for node_id in given if node_id not in found), *unknown]
    sentences = [
        (other, f"Profile type of nodes {other} does not match that of the cluster."),
        (owned, f"Nodes {owned} already owned by some cluster."),
        (idle, f"Nodes are not ACTIVE: {idle}."),
        (missing, f"Nodes not found: {missing}."),
    ]
    return "\n".join(sentence for nodes_, sentence in sentences if nodes_) or None


async def del_nodes(context: PlanningContext) -> ActionPlan:
    """These nodes leave, or are destroyed: as the request says, else as the policy does."""
    inputs, decided = RemoveInputs.from_json(context.work.inputs), context.work.decisions.deletion
    inside = {node.id for node in await context.all_members()}
    given = [node_id for node_id in inputs.candidates if node_id in inside]
    destroy = inputs.destroy_after_deletion
    if destroy is None:
        destroy = bool(decided.destroy_after_deletion)
    plan = leave(context, given, destroy=destroy)
    if decided.reduce_desired_capacity:
        context.check_size(context.count - len(given))
        return plan
    kept = replace(plan.program, desired=context.cluster.desired_capacity, keep_desired=True)
    return replace(plan, program=kept)


async def replace_nodes(context: PlanningContext) -> ActionPlan:
    """New members join before the old ones leave."""
    pairs = ReplaceInputs.from_json(context.work.inputs).candidates
    inside = {node.id for node in await context.all_members()}
    outside = [old for old in pairs if old not in inside]
    if outside:
        raise ActionRefused(
            f"The specified nodes {outside} to be replaced are not members of the cluster {context.cluster.id}."
        )
    await _refuse_strangers(context, list(pairs.values()))
    plan = _joining(context, pairs.values(), desired=None, busy=ClusterStatus.UPDATING)
    return replace(plan, steps=(*plan.steps, *(NodeStep.new(ActionName.NODE_LEAVE, old, 1) for old in pairs)))


# Looking after members


async def check(context: PlanningContext) -> ActionPlan:
    """Check every node."""
    steps = tuple(NodeStep.new(ActionName.NODE_CHECK, node.id) for node in await context.all_members())
    return ActionPlan(Program(), steps, busy=ClusterStatus.CHECKING)


async def recover(context: PlanningContext) -> ActionPlan:
    """Recover the nodes that are not well; with `check_capacity`, make those that are missing or remove surplus
    ones."""
    inputs, decided = RecoverInputs.from_json(context.work.inputs), context.work.decisions
    broken = [node for node in await context.all_members() if inputs.check or node.status != NodeStatus.ACTIVE]
    given = recovery(NodeInputs.from_json(context.work.inputs), decided)
    places = placements(decided)
    steps = [
        NodeStep.new(
            ActionName.NODE_RECOVER,
            node.id,
            0,
            replace(given, placement=_somewhere(places) if node.status != NodeStatus.ACTIVE else None),
        )
        for node in broken
    ]
    missing = context.cluster.desired_capacity - context.count if inputs.check_capacity else 0
    if missing > 0 or decided.rebalance:
        plan = grow(context, max(missing, 0), places)
    elif missing < 0:
        plan = await shrink(context, -missing)
    else:
        plan = ActionPlan(Program())
    leaving = {step.node_id for step in plan.steps}
    stay = [step for step in steps if step.node_id not in leaving]
    return replace(plan, steps=(*stay, *plan.steps), busy=ClusterStatus.RECOVERING)


def recovery(given: NodeInputs, decided: Decisions) -> NodeInputs:
    """How nodes are recovered: as the request says, else as the policies do."""
    plain = NodeInputs(operation=given.operation, operation_params=given.operation_params, check=given.check)
    if plain.operation is None and decided.health.recover_action:
        way = decided.health.recover_action[0]
        return replace(plain, operation=way.name, operation_params=way.params)
    return plain


def _somewhere(places: Iterator[Place]) -> Place | None:
    place = next(places)
    return place if place != Place() else None


async def operate(context: PlanningContext) -> ActionPlan:
    """One of the profile's operations on each of the nodes that the request chose."""
    inputs = OperateInputs.from_json(context.work.inputs)
    inside = {node.id for node in await context.all_members()}
    step = partial(
        NodeStep.new,
        ActionName.NODE_OPERATION,
        part=0,
        inputs=NodeInputs(operation=inputs.operation, params=inputs.params),
    )
    steps = tuple(step(node_id) for node_id in inputs.nodes if node_id in inside)
    return ActionPlan(Program(), steps, busy=ClusterStatus.OPERATING)


PLANNERS: Mapping[str, Planner] = {
    ActionName.CLUSTER_CREATE: create,
    ActionName.CLUSTER_DELETE: delete,
    ActionName.CLUSTER_UPDATE: update,
    ActionName.CLUSTER_SCALE_OUT: scale_out,
    ActionName.CLUSTER_SCALE_IN: scale_in,
    ActionName.CLUSTER_RESIZE: resize,
    ActionName.CLUSTER_ADD_NODES: add_nodes,
    ActionName.CLUSTER_DEL_NODES: del_nodes,
    ActionName.CLUSTER_REPLACE_NODES: replace_nodes,
    ActionName.CLUSTER_CHECK: check,
    ActionName.CLUSTER_RECOVER: recover,
    ActionName.CLUSTER_OPERATION: operate,
}
