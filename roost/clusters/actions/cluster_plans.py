"""What each action comes to: from its inputs, what the policies left in its data, and the cluster as it stands.

A planner only reads and decides. What it returns is written down before anything is done; where the action cannot be
carried out it raises `Refused`, and nothing has changed.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import sizes, state
from roost.clusters.actions.work import ActionPlan, ActionRefused, Work, derived
from roost.clusters.bindings import Bound
from roost.clusters.ids import new_id
from roost.clusters.names import FORMAT, node_name
from roost.clusters.policies import victims
from roost.clusters.policies.base import NodeView
from roost.clusters.states import ActionName
from roost.store.tables.clusters import nodes, profiles

Planner = Callable[["PlanningContext"], Awaitable[ActionPlan]]


@dataclass(slots=True)
class PlanningContext:
    """All that a planner looks at."""

    work: Work
    connection: AsyncConnection
    cluster: sa.Row[Any]
    bound: list[Bound]
    members: tuple[NodeView, ...] | None
    """None where nobody needed to know them all."""
    count: int

    async def all_members(self) -> tuple[NodeView, ...]:
        """The nodes of the cluster."""
        if self.members is None:
            self.members = await state.members(self.connection, self.cluster.id)
        return self.members

    @property
    def sizes(self) -> sizes.Sizes:
        """The cluster's sizes as they are."""
        return state.sizes(self.cluster)

    def check_size(self, desired: int) -> None:
        """Refuse a size outside the cluster's bounds."""
        refusal = sizes.misfit(self.sizes, desired, strict=True, max_nodes=self.work.engine.settings.max_nodes)
        if refusal is not None:
            raise ActionRefused(refusal)


# Making and removing clusters


async def create(scene: PlanningContext) -> ActionPlan:
    """All nodes that a new cluster should have. Those that cannot be made stay, for a recovery to make."""
    plan = grow(scene, scene.cluster.desired_capacity)
    return replace(plan, busy="CREATING", desired=None, undo_failures=False)


async def delete(scene: PlanningContext) -> ActionPlan:
    """Every node goes, then the cluster."""
    nodes = await scene.all_members()
    config = scene.cluster.config
    steps: list[tuple[str, str, int, Mapping[str, Any]]] = []
    if config.get("cluster.stop_node_before_delete"):
        stop = {"operation": "stop", "params": {}, "best_effort": True}
        steps = [(ActionName.NODE_OPERATION, node.id, 0, stop) for node in nodes if node.physical_id]
    part = 1 if steps else 0
    forced: Mapping[str, Any] = {"force": True} if scene.work.inputs.get("force") else {}
    steps += [(ActionName.NODE_DELETE, node.id, part, forced) for node in nodes]
    return ActionPlan(derived(scene.work, steps), busy="DELETING")


async def update(scene: PlanningContext) -> ActionPlan:
    """New properties at once; a new profile node by node, in the batches that a policy may have set."""
    inputs = scene.work.inputs
    at_once = {key: inputs[key] for key in ("name", "metadata", "timeout", "config") if inputs.get(key) is not None}
    plan = ActionPlan(busy="UPDATING", at_once=at_once)
    if not inputs.get("new_profile_id"):
        return plan
    plan.change = {"profile_id": inputs["new_profile_id"]}
    if inputs.get("profile_only"):
        return plan
    nodes = {node.id: node for node in await scene.all_members()}
    decided = scene.work.data.get("update") or {}
    batches: list[list[str]] = [list(batch) for batch in decided.get("plan") or [list(nodes)]]
    named = {node_id for batch in batches for node_id in batch}
    batches.append([node_id for node_id in nodes if node_id not in named])
    change = {"new_profile_id": inputs["new_profile_id"]}
    steps = [
        (ActionName.NODE_UPDATE, node_id, part, change)
        for part, batch in enumerate(batches)
        for node_id in batch
        if node_id in nodes
    ]
    plan.steps = derived(scene.work, steps)
    plan.pause = float(decided.get("pause_time") or 0)
    return plan


# Growing and shrinking


async def scale_out(scene: PlanningContext) -> ActionPlan:
    """As many new nodes as asked for."""
    count = _count(scene.work, "creation", "out")
    scene.check_size(scene.count + count)
    return grow(scene, count)


async def scale_in(scene: PlanningContext) -> ActionPlan:
    """As many nodes fewer as asked for; those that a policy chose, if one did."""
    chosen = (scene.work.data.get("deletion") or {}).get("candidates")
    count = len(chosen) if chosen else min(_count(scene.work, "deletion", "in"), scene.count)
    scene.check_size(scene.count - count)
    return await shrink(scene, count)


async def resize(scene: PlanningContext) -> ActionPlan:
    """Whatever it takes to get the size asked for, and the new bounds."""
    wanted = sizes.resize(scene.work.inputs, scene.sizes, scene.count, scene.work.engine.settings.max_nodes)
    if isinstance(wanted, str):
        raise ActionRefused(wanted)
    bounds = {
        key: value for key, value in (("min_size", wanted.min_size), ("max_size", wanted.max_size)) if value is not None
    }
    if wanted.change > 0 or scene.work.data.get("rebalance"):
        plan = grow(scene, wanted.change)
    elif wanted.change < 0:
        plan = await shrink(scene, -wanted.change)
    else:
        plan = ActionPlan(busy="RESIZING", desired=wanted.desired)
    return replace(plan, change={**plan.change, **bounds})


def _count(work: Work, key: str, direction: str) -> int:
    decided = work.data.get(key) or {}
    given = decided.get("count", work.inputs.get("count", 1))
    try:
        count = int(given)
    except (TypeError, ValueError):
        count = 0
    if count <= 0:
        raise ActionRefused(f"Invalid count ({given}) for scaling {direction}.")
    return count


def grow(scene: PlanningContext, count: int, places: Iterator[dict[str, Any]] | None = None) -> ActionPlan:
    """That many new nodes, each in the next place that the policies gave; and nodes that move elsewhere, made anew
    before they go."""
    moved = list(scene.work.data.get("rebalance") or ())
    taken = itertools.islice(places or placements(scene.work.data), count + len(moved))
    first = scene.cluster.next_index
    new = [new_node(scene, first + number, {"placement": place} if place else {}) for number, place in enumerate(taken)]
    steps: list[tuple[str, str, int, Mapping[str, Any]]] = [(ActionName.NODE_CREATE, node["id"], 0, {}) for node in new]
    steps += [
        (ActionName.NODE_DELETE, node_id, 1, {"replaced_by": successor["id"]})
        for node_id, successor in zip(moved, new[count:], strict=True)
    ]
    return ActionPlan(
        derived(scene.work, steps),
        new_nodes=new,
        busy="RESIZING",
        desired=scene.count + count,
        at_once={"next_index": first + len(new)},
        undo_failures=True,
    )


def placements(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Where each new node goes: first what was decided for it alone, then the next place in the plan of zones and
    regions; nowhere in particular when these are used up."""
    single = iter((data.get("placement") or {}).get("placements") or ())
    creation = data.get("creation") or {}
    zones = _expanded(creation.get("zones"))
    regions = _expanded(creation.get("regions"))
    while True:
        place: dict[str, Any] = {}
        if (region := next(regions, None)) is not None:
            place["region_name"] = region
        if (zone := next(zones, None)) is not None:
            place["zone"] = zone
        yield {**place, **{key: value for key, value in next(single, {}).items() if value}}


def _expanded(plan: Mapping[str, int] | None) -> Iterator[str]:
    return itertools.chain.from_iterable(itertools.repeat(name, number) for name, number in (plan or {}).items())


def new_node(scene: PlanningContext, index: int, data: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a node to be made in the cluster."""
    return {
        "id": new_id(),
        "name": node_name(scene.cluster.config.get(FORMAT), index),
        "profile_id": scene.cluster.profile_id,
        "index": index,
        "data": dict(data),
    }


async def shrink(scene: PlanningContext, count: int) -> ActionPlan:
    """That many nodes go: those that the policies chose, else unhealthy ones first."""
    decided = scene.work.data.get("deletion") or {}
    chosen = list(decided.get("candidates") or ()) or await choose(scene, count)
    scene.work.data["deletion"] = {**decided, "count": len(chosen), "candidates": chosen}
    destroy = decided.get("destroy_after_deletion", True)
    return leave(scene, chosen, destroy=destroy, desired=scene.count - len(chosen))


async def choose(scene: PlanningContext, count: int) -> list[str]:
    """Victims, where no policy chose them: from each zone or region as many as planned, unhealthy ones first."""
    members = await scene.all_members()
    decided = scene.work.data.get("deletion") or {}
    by = victims.order(victims.RANDOM, {}, scene.work.id)
    picked = victims.select(members, count, by, decided.get("regions"), decided.get("zones"))
    return [node.id for node in picked]


def leave(scene: PlanningContext, node_ids: Sequence[str], *, destroy: bool, desired: int) -> ActionPlan:
    """These nodes go, after the time and the hooks that a policy set."""
    decided, hooks = scene.work.data.get("deletion") or {}, scene.work.data.get("hooks") or {}
    action = ActionName.NODE_DELETE if destroy else ActionName.NODE_LEAVE
    steps = derived(scene.work, [(action, node_id, 0, {}) for node_id in node_ids])
    plan = ActionPlan(steps, busy="RESIZING", desired=desired, wait=float(decided.get("grace_period") or 0))
    if hooks and hooks.get("timeout") is not None:
        alive = {node.id for node in scene.members or () if node.status == "ACTIVE" and node.physical_id}
        plan.steps = [replace(step, waiting=step.node_id in alive) for step in steps]
        plan.wait = max(plan.wait, float(hooks["timeout"])) if alive & set(node_ids) else plan.wait
        plan.more["hooks"] = hooks
    return plan


# Members that come and go by name


async def add_nodes(scene: PlanningContext) -> ActionPlan:
    """Nodes that were in no cluster join."""
    given: list[str] = list(scene.work.inputs["nodes"])
    found = await state.nodes_by_id(scene.connection, given)
    problem = await why_not_joinable(scene.connection, scene.cluster, given, found)
    if problem:
        raise ActionRefused(problem)
    scene.check_size(scene.count + len(given))
    first = scene.cluster.next_index
    steps = [
        (ActionName.NODE_JOIN, node_id, 0, {"cluster_id": scene.cluster.id, "index": first + number})
        for number, node_id in enumerate(given)
    ]
    return ActionPlan(
        derived(scene.work, steps),
        busy="RESIZING",
        desired=scene.count + len(given),
        at_once={"next_index": first + len(given)},
    )


async def why_not_joinable(
    connection: AsyncConnection, cluster: sa.Row[Any], given: Sequence[str], found: Mapping[str, NodeView]
) -> str | None:
    """Why some of these nodes cannot join the cluster, if they cannot."""
    query = (
        sa.select(nodes.c.id, nodes.c.cluster_id, nodes.c.status, profiles.c.type)
        .join(profiles, profiles.c.id == nodes.c.profile_id)
        .where(nodes.c.id == sa.any_(sa.bindparam("ids", list(found))))
    )
    rows = (await connection.execute(query)).all()
    kind = await connection.scalar(sa.select(profiles.c.type).where(profiles.c.id == cluster.profile_id))
    owned = [row.id for row in rows if row.cluster_id is not None]
    idle = [row.id for row in rows if row.status != "ACTIVE"]
    other = [row.id for row in rows if row.type != kind]
    missing = [node_id for node_id in given if node_id not in found]
    sentences = [
        (other, f"Profile type of nodes {other} does not match that of the cluster."),
        (owned, f"Nodes {owned} already owned by some cluster."),
        (idle, f"Nodes are not ACTIVE: {idle}."),
        (missing, f"Nodes not found: {missing}."),
    ]
    return "\n".join(sentence for nodes_, sentence in sentences if nodes_) or None


async def del_nodes(scene: PlanningContext) -> ActionPlan:
    """These nodes leave, or are destroyed: as the request says, else as the policy does."""
    inside = {node.id for node in await scene.all_members()}
    given = [node_id for node_id in scene.work.inputs["candidates"] if node_id in inside]
    decided = scene.work.data.get("deletion") or {}
    destroy = scene.work.inputs.get("destroy_after_deletion")
    if destroy is None:
        destroy = decided.get("destroy_after_deletion", False)
    reduce = decided.get("reduce_desired_capacity", True)
    desired = scene.count - len(given) if reduce else scene.cluster.desired_capacity
    if reduce:
        scene.check_size(scene.count - len(given))
    plan = leave(scene, given, destroy=bool(destroy), desired=desired)
    plan.more["keep_desired"] = not reduce
    return plan


async def replace_nodes(scene: PlanningContext) -> ActionPlan:
    """New members join before the old ones leave."""
    pairs: dict[str, str] = scene.work.inputs["candidates"]
    inside = {node.id for node in await scene.all_members()}
    outside = [old for old in pairs if old not in inside]
    if outside:
        raise ActionRefused(
            f"The specified nodes {outside} to be replaced are not members of the cluster {scene.cluster.id}."
        )
    found = await state.nodes_by_id(scene.connection, list(pairs.values()))
    problem = await why_not_joinable(scene.connection, scene.cluster, list(pairs.values()), found)
    if problem:
        raise ActionRefused(problem)
    first = scene.cluster.next_index
    steps: list[tuple[str, str, int, Mapping[str, Any]]] = [
        (ActionName.NODE_JOIN, new, 0, {"cluster_id": scene.cluster.id, "index": first + number})
        for number, new in enumerate(pairs.values())
    ]
    steps += [(ActionName.NODE_LEAVE, old, 1, {}) for old in pairs]
    return ActionPlan(derived(scene.work, steps), busy="UPDATING", at_once={"next_index": first + len(pairs)})


# Looking after members


async def check(scene: PlanningContext) -> ActionPlan:
    """Every node is looked at."""
    nothing: Mapping[str, Any] = {}
    steps = [(ActionName.NODE_CHECK, node.id, 0, nothing) for node in await scene.all_members()]
    return ActionPlan(derived(scene.work, steps), busy="CHECKING")


async def recover(scene: PlanningContext) -> ActionPlan:
    """Nodes that are not well are made well; with `check_capacity`, missing ones are made or surplus ones removed."""
    inputs, data = scene.work.inputs, scene.work.data
    members = await scene.all_members()
    broken = [node for node in members if inputs.get("check") or node.status != "ACTIVE"]
    ways = (data.get("health") or {}).get("recover_action")
    given = {key: inputs[key] for key in ("operation", "operation_params", "check") if inputs.get(key) is not None}
    if "operation" not in given and ways:
        given |= {"operation": ways[0].get("name"), "operation_params": ways[0].get("params") or {}}
    places = placements(data)
    steps: list[tuple[str, str, int, Mapping[str, Any]]] = []
    for node in broken:
        place = next(places) if node.status != "ACTIVE" else {}
        steps.append((ActionName.NODE_RECOVER, node.id, 0, {**given, **({"placement": place} if place else {})}))
    missing = scene.cluster.desired_capacity - scene.count if inputs.get("check_capacity") else 0
    if missing > 0 or data.get("rebalance"):
        plan = replace(grow(scene, max(missing, 0), places), busy="RECOVERING")
    elif missing == 0:
        return ActionPlan(derived(scene.work, steps), busy="RECOVERING")
    else:
        plan = replace(await shrink(scene, -missing), busy="RECOVERING")
    leaving = {step.node_id for step in plan.steps}
    plan.steps = derived(scene.work, [step for step in steps if step[1] not in leaving]) + plan.steps
    return plan


async def operate(scene: PlanningContext) -> ActionPlan:
    """One of the profile's operations on each of the nodes that the request chose."""
    inside = {node.id for node in await scene.all_members()}
    given = {"operation": scene.work.inputs["operation"], "params": scene.work.inputs.get("params") or {}}
    steps = [
        (ActionName.NODE_OPERATION, node_id, 0, given) for node_id in scene.work.inputs["nodes"] if node_id in inside
    ]
    return ActionPlan(derived(scene.work, steps), busy="OPERATING")


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
