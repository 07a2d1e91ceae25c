"""What an action does to its nodes: in parts, each part in batches, and each batch recorded as soon as it is done.

Every step may be done twice: an engine that dies between doing and writing leaves the step to be done again, and the
profile finds what was made by the node's id.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import groupby
from typing import TypedDict, Unpack, cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import Cloud, CloudError
from roost.clusters import state
from roost.clusters.actions import hooks
from roost.clusters.actions.context import PlanningContext
from roost.clusters.actions.program import ActionPlan, NodeInputs, NodeStep, Outputs
from roost.clusters.actions.work import Work
from roost.clusters.events import Event, Severity
from roost.clusters.policies.base import NodeView
from roost.clusters.policies.decisions import Place
from roost.clusters.profiles.base import NodeOutcome, Profile
from roost.clusters.states import CHANGING, ActionName, ActionStatus, NodeStatus, Recovery
from roost.store.database import now
from roost.store.tables.clusters import actions, nodes, unfinished

logger = logging.getLogger(__name__)

_RETRY_AFTER = (0.5, 1.0, 2.0)
"""Seconds before a call that a cloud did not answer is retried."""
_MOST_EVENTS = 20
_LEAVING = (ActionName.NODE_DELETE, ActionName.NODE_LEAVE)


@dataclass(frozen=True, slots=True)
class NodeBatch:
    """Nodes to which the same is done."""

    work: Work
    cloud: Cloud
    profile: Profile
    profiles: Mapping[str, Profile]
    nodes: list[NodeView]
    steps: Mapping[str, NodeStep]
    inputs: NodeInputs


class NodeColumns(TypedDict, total=False):
    """Columns of a node to set; `created` says that it has just been made."""

    name: str
    role: str
    metadata: Mapping[str, object]
    tainted: bool
    status: NodeStatus
    status_reason: str
    physical_id: str | None
    profile_id: str
    cluster_id: str | None
    index: int
    created: bool


@dataclass(slots=True)
class StepResult:
    """What became of one node, as its row is to say it."""

    node_id: str
    ok: bool
    reason: str
    columns: NodeColumns = field(default_factory=NodeColumns)
    data: dict[str, object] = field(default_factory=dict)
    gone: bool = False


# Doing


async def carry_out(work: Work, context: PlanningContext) -> bool:
    """Do the steps that are left, part by part; False if the action has to wait before it goes on."""
    if work.steps is None:
        async with work.engine.database.begin() as connection:
            work.steps = await _read_steps(connection, work) if work.action.on_cluster else _own_step(work)
    while work.steps:
        part = work.steps[0].part
        if await _must_wait(work, part):
            return False
        await _do(work, context, [step for step in work.steps if step.part == part])
        work.steps = tuple(step for step in work.steps if step.part != part)
    return True


async def _read_steps(connection: AsyncConnection, work: Work) -> tuple[NodeStep, ...]:
    """The steps that are not yet done, in order."""
    query = (
        sa.select(actions.c.id, actions.c.action, actions.c.target, actions.c.part, actions.c.inputs, actions.c.status)
        .where(actions.c.parent_id == work.id, unfinished)
        .order_by(actions.c.part, actions.c.sequence)
    )
    return tuple(
        NodeStep(
            row.id,
            ActionName(row.action),
            row.target,
            row.part,
            NodeInputs.from_json(row.inputs, f"The inputs of action {row.id}"),
            row.status == ActionStatus.WAITING_LIFECYCLE_COMPLETION,
        )
        for row in await connection.execute(query)
    )


def _own_step(work: Work) -> tuple[NodeStep, ...]:
    plan = work.planned
    step = NodeStep(work.id, work.action, work.target, 0, plan.inputs or NodeInputs(), plan.hooks is not None)
    return () if plan.done else (step,)


async def _must_wait(work: Work, part: int) -> bool:
    """Whether it is too early for this part: a hook, a grace period, or the pause between two parts."""
    plan = work.planned
    rests = bool(plan.pause) and plan.last_part not in (None, part) and plan.paused_for != part
    if not rests and plan.not_before is None:
        return False
    async with work.engine.database.begin() as connection:
        moment = await now(connection)
    if rests:
        plan = replace(plan, paused_for=part, not_before=moment + timedelta(seconds=plan.pause))
    waits_for_hooks = any(step.waiting for step in work.steps or ())
    if plan.not_before is None or plan.not_before <= moment or (plan.hooks and not waits_for_hooks):
        return False
    on_hook = waits_for_hooks and not work.action.on_cluster
    async with work.write() as connection:
        work.check_signal()
        await connection.execute(
            actions.update()
            .where(actions.c.id == work.id)
            .values(
                status=ActionStatus.WAITING_LIFECYCLE_COMPLETION if on_hook else ActionStatus.WAITING,
                status_reason="Waiting for depended actions." if waits_for_hooks else "Waiting for its time.",
                wake_at=plan.not_before,
                owner=None,
                plan=plan.to_json(),
            )
        )
    return True


async def _do(work: Work, context: PlanningContext, steps: Sequence[NodeStep]) -> None:
    found = await work.engine.journal.nodes([step.node_id for step in steps])
    wanted = {node.profile_id for node in found.values()}
    wanted |= {step.inputs.new_profile_id for step in steps if step.inputs.new_profile_id}
    missing = wanted - set(context.profiles)
    if missing:
        async with work.engine.database.begin() as connection:
            context.profiles = {**context.profiles, **await state.profiles_by_id(connection, missing)}
    profiles = {key: work.engine.plugins.restore_profile(context.profiles[key]) for key in wanted}
    vanished = [step for step in steps if step.node_id not in found]
    if vanished:
        gone = [StepResult(step.node_id, step.action in _LEAVING, "The node is gone.", gone=True) for step in vanished]
        await write(work, vanished, gone)
    left = await _keep_unreplaced(work, [step for step in steps if step.node_id in found])
    for batch in _batches(work, context.cloud, profiles, left, found):
        work.check_signal()
        await write(work, list(batch.steps.values()), await _patiently(batch))


async def _keep_unreplaced(work: Work, steps: Sequence[NodeStep]) -> list[NodeStep]:
    """The steps without those of nodes whose successors could not be made: these nodes stay."""
    successors = [step.inputs.replaced_by for step in steps if step.inputs.replaced_by]
    if not successors:
        return list(steps)
    found = await work.engine.journal.nodes(successors)
    ready = {None, *(node.id for node in found.values() if node.status == NodeStatus.ACTIVE)}
    stay = [step for step in steps if step.inputs.replaced_by not in ready]
    if stay:
        reason = "It stays, since the node that was to take its place could not be made."
        await write(work, stay, [StepResult(step.node_id, False, reason) for step in stay])
    return [step for step in steps if step not in stay]


def _batches(
    work: Work, cloud: Cloud, profiles: Mapping[str, Profile], steps: Sequence[NodeStep], found: Mapping[str, NodeView]
) -> Iterator[NodeBatch]:
    def alike(step: NodeStep) -> str:
        shared = replace(step.inputs, index=None, placement=None, replaced_by=None)
        return json.dumps([step.action, found[step.node_id].profile_id, shared.to_json()], sort_keys=True)

    for _, group in groupby(sorted(steps, key=alike), key=alike):
        some = list(group)
        for start in range(0, len(some), cloud.batch_size):
            chunk = some[start : start + cloud.batch_size]
            yield NodeBatch(
                work=work,
                cloud=cloud,
                profile=profiles[found[chunk[0].node_id].profile_id],
                profiles=profiles,
                nodes=[found[step.node_id] for step in chunk],
                steps={step.node_id: step for step in chunk},
                inputs=chunk[0].inputs,
            )


async def _patiently(batch: NodeBatch) -> list[StepResult]:
    """Do it; calls that a cloud does not answer are retried a few times before the nodes are given up."""
    action = next(iter(batch.steps.values())).action
    batch.work.in_hand = batch if action in (ActionName.NODE_CREATE, ActionName.NODE_RECOVER) else None
    for pause in (*_RETRY_AFTER, None):
        try:
            return await DOING[action](batch)
        except CloudError as error:
            if pause is None:
                return [_failed(node, f"The cloud does not answer: {error}") for node in batch.nodes]
            await asyncio.sleep(pause)
    raise AssertionError("unreachable")


def _failed(node: NodeView, reason: str) -> StepResult:
    return StepResult(node.id, False, reason, {"status": NodeStatus.ERROR, "status_reason": reason})


def _results(outcomes: Sequence[NodeOutcome], done: str, **columns: Unpack[NodeColumns]) -> list[StepResult]:
    return [_result(outcome, done, columns) for outcome in outcomes]


def _result(outcome: NodeOutcome, done: str, columns: NodeColumns) -> StepResult:
    if outcome.ok:
        own: NodeColumns = {
            "status": NodeStatus.ACTIVE,
            "status_reason": done,
            "physical_id": outcome.physical_id,
            **columns,
        }
    else:
        own = {"status": NodeStatus.ERROR, "status_reason": outcome.reason}
        if outcome.physical_id:
            own["physical_id"] = outcome.physical_id
    return StepResult(outcome.node_id, outcome.ok, done if outcome.ok else outcome.reason, own, dict(outcome.data))


async def _create(batch: NodeBatch) -> list[StepResult]:
    places = {node.id: batch.steps[node.id].inputs.placement for node in batch.nodes}
    placed = [_placed(node, places[node.id]) for node in batch.nodes]
    outcomes = await batch.profile.create(batch.cloud, placed, batch.work.cluster_id)
    return _with_places(_results(outcomes, "Creation succeeded", created=True), places)


def _placed(node: NodeView, place: Place | None) -> NodeView:
    return node._replace(data={**node.data, "placement": place.to_json()}) if place else node


def _with_places(results: list[StepResult], places: Mapping[str, Place | None]) -> list[StepResult]:
    for result in results:
        if result.ok and (place := places.get(result.node_id)):
            result.data = {"placement": place.to_json(), **result.data}
    return results


async def _delete(batch: NodeBatch) -> list[StepResult]:
    outcomes = await batch.profile.delete(batch.cloud, batch.nodes, force=batch.inputs.force)
    return [
        StepResult(outcome.node_id, True, outcome.reason or "Deletion succeeded", gone=True)
        if outcome.ok
        else _result(outcome, "", {})
        for outcome in outcomes
    ]


async def _check(batch: NodeBatch) -> list[StepResult]:
    outcomes = await batch.profile.check(batch.cloud, batch.nodes)
    results = _results(outcomes, "Check: Node is ACTIVE.")
    for result in results:
        # A check that finds a node unhealthy has succeeded: that is what it is for.
        result.ok, result.reason = True, ""
    return results


async def _recover(batch: NodeBatch) -> list[StepResult]:
    well: list[StepResult] = []
    broken = batch.nodes
    if batch.inputs.check:
        checked = await batch.profile.check(batch.cloud, batch.nodes)
        fine = {outcome.node_id for outcome in checked if outcome.ok}
        well = _results([outcome for outcome in checked if outcome.ok], "Recover: Node is ACTIVE before recover.")
        broken = [node for node in batch.nodes if node.id not in fine]
    operation = batch.inputs.recovery
    # A server that is only rebooted or rebuilt stays where it is, whatever place the policies had for a new one.
    places = {node.id: batch.steps[node.id].inputs.placement for node in broken if operation == Recovery.RECREATE}
    placed = [_placed(node, places.get(node.id)) for node in broken]
    outcomes = await batch.profile.recover(
        batch.cloud, placed, operation, batch.inputs.operation_params, batch.work.cluster_id
    )
    return well + _with_places(_results(outcomes, "Recovery succeeded", tainted=False), places)


async def _update(batch: NodeBatch) -> list[StepResult]:
    given, done = batch.inputs, "Update succeeded"
    named = {"name": given.name, "role": given.role, "metadata": given.metadata, "tainted": given.tainted}
    columns = cast(NodeColumns, {key: value for key, value in named.items() if value is not None})
    if given.new_profile_id is None:
        columns |= {"status": NodeStatus.ACTIVE, "status_reason": done}
        return [StepResult(node.id, True, done, columns.copy()) for node in batch.nodes]
    columns["profile_id"] = given.new_profile_id
    outcomes = await batch.profile.update(batch.cloud, batch.nodes, batch.profiles[given.new_profile_id])
    return _results(outcomes, done, **columns)


async def _operate(batch: NodeBatch) -> list[StepResult]:
    operation = batch.inputs.operation or ""
    outcomes = await batch.profile.operate(batch.cloud, batch.nodes, operation, batch.inputs.params)
    results = _results(outcomes, f"Operation '{operation}' succeeded")
    for result in results:
        result.ok = result.ok or batch.inputs.best_effort
    return results


async def _join(batch: NodeBatch) -> list[StepResult]:
    cluster_id = batch.inputs.cluster_id or ""
    indexes = {node.id: batch.steps[node.id].inputs.index or 0 for node in batch.nodes}
    indexed = [node._replace(index=indexes[node.id]) for node in batch.nodes]
    outcomes = await batch.profile.join(batch.cloud, indexed, cluster_id)
    results = _results(outcomes, "Join succeeded", cluster_id=cluster_id)
    for result in results:
        if result.ok:
            result.columns["index"] = indexes[result.node_id]
    return results


async def _leave(batch: NodeBatch) -> list[StepResult]:
    outcomes = await batch.profile.leave(batch.cloud, batch.nodes)
    return _results(outcomes, "Leave succeeded", cluster_id=None, index=-1)


DOING: Mapping[ActionName, Callable[[NodeBatch], Awaitable[list[StepResult]]]] = {
    ActionName.NODE_CREATE: _create,
    ActionName.NODE_DELETE: _delete,
    ActionName.NODE_CHECK: _check,
    ActionName.NODE_RECOVER: _recover,
    ActionName.NODE_UPDATE: _update,
    ActionName.NODE_OPERATION: _operate,
    ActionName.NODE_JOIN: _join,
    ActionName.NODE_LEAVE: _leave,
}


# Writing down


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A batch of an action, and what became of each of its nodes."""

    work: Work
    steps: Mapping[str, NodeStep]
    results: Sequence[StepResult]


async def write(work: Work, steps: Sequence[NodeStep], results: Sequence[StepResult]) -> None:
    """Write down what became of a batch, together with the batches of other actions."""
    plan = replace(work.planned, last_part=steps[0].part)
    if not work.action.on_cluster:
        plan = replace(plan, done=True, failure=None if results[0].ok else results[0].reason)
    done = (work.outputs.nodes_done or 0) + len(results)
    work.program, work.outputs = plan, replace(work.outputs, nodes_done=done)
    await work.engine.journal.done(BatchDone(work, {step.node_id: step for step in steps}, results))


# Afterwards


@dataclass(frozen=True, slots=True)
class EndedStep:
    """What became of one step."""

    step: NodeStep
    name: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What became of every step."""

    steps: tuple[EndedStep, ...] = ()

    @property
    def failed(self) -> list[EndedStep]:
        """The steps that failed."""
        return [ended for ended in self.steps if ended.status == ActionStatus.FAILED]

    @property
    def unmade(self) -> list[str]:
        """The nodes that could not be made."""
        return [ended.step.node_id for ended in self.failed if ended.step.action is ActionName.NODE_CREATE]

    def outputs(self, before: Outputs) -> Outputs:
        """Which nodes were added, which were removed, and which failed."""
        return replace(
            before,
            nodes_added=self._done(ActionName.NODE_CREATE, ActionName.NODE_JOIN),
            nodes_removed=self._done(*_LEAVING),
            nodes_failed={ended.step.node_id: ended.reason for ended in self.failed},
        )

    def _done(self, *names: ActionName) -> tuple[str, ...]:
        return tuple(
            ended.step.node_id
            for ended in self.steps
            if ended.step.action in names and ended.status == ActionStatus.SUCCEEDED
        )

    def events(self, work: Work) -> list[Event]:
        """One event for each node that failed, up to a number that people still read."""
        if not work.action.on_cluster:
            return []
        return [
            work.node_event(ended.step, "error", ended.reason, Severity.ERROR, ended.name)
            for ended in self.failed[:_MOST_EVENTS]
        ]


async def read_reports(connection: AsyncConnection, works: Sequence[Work]) -> list[Report]:
    """What became of the steps of these actions."""
    parents = [work.id for work in works if work.action.on_cluster]
    columns = (actions.c.parent_id, actions.c.id, actions.c.action, actions.c.target, actions.c.part)
    query = (
        sa.select(*columns, nodes.c.name, actions.c.status, actions.c.status_reason)
        .outerjoin(nodes, nodes.c.id == actions.c.target)
        .where(state.among(actions.c.parent_id, parents))
        .order_by(actions.c.sequence)
    )
    found: dict[str, list[EndedStep]] = {parent: [] for parent in parents}
    for row in await connection.execute(query) if parents else ():
        step = NodeStep(row.id, ActionName(row.action), row.target, row.part)
        found[row.parent_id].append(EndedStep(step, row.name or row.target, row.status, row.status_reason))
    return [Report(tuple(found[work.id])) if work.action.on_cluster else _own_report(work) for work in works]


def _own_report(work: Work) -> Report:
    if work.program is None or work.program.failure is None:
        return Report()
    step = NodeStep(work.id, work.action, work.target)
    return Report((EndedStep(step, work.target, ActionStatus.FAILED, work.program.failure),))


async def forget_unmade(work: Work, context: PlanningContext, doomed: Sequence[str]) -> None:
    """Forget new nodes that could not be made, and whatever the cloud may have left of them."""
    async with work.write() as connection:
        # As for any deletion: an attempt that was overtaken while it made them sees that they will not stay.
        going = nodes.update().where(state.among(nodes.c.id, doomed)).values(status=NodeStatus.DELETING)
        await connection.execute(going)
        found = await state.nodes_by_id(connection, doomed)
        rows = await state.profiles_by_id(connection, [node.profile_id for node in found.values()])
    gone: list[str] = []
    for key, row in rows.items():
        some = [node for node in found.values() if node.profile_id == key]
        try:
            outcomes = await work.engine.plugins.restore_profile(row).delete(context.cloud, some)
        except CloudError as error:
            logger.warning("could not remove what a failed step left", extra={"error": str(error)})
            continue
        gone += [outcome.node_id for outcome in outcomes if outcome.ok]
    async with work.write() as connection:
        await connection.execute(nodes.delete().where(state.among(nodes.c.id, gone)))
        stays = nodes.update().where(state.among(nodes.c.id, found.keys() - gone)).values(status=NodeStatus.ERROR)
        await connection.execute(stays)


async def close(connection: AsyncConnection, work: Work, status: ActionStatus, reason: str) -> None:
    """End the steps that were not done, and release their nodes."""
    idle = [] if work.program is not None and work.program.done else [work.target]
    if work.action.on_cluster:
        left = (
            sa.update(actions)
            .where(actions.c.parent_id == work.id, unfinished)
            .values(
                status=ActionStatus.CANCELLED if status == ActionStatus.CANCELLED else ActionStatus.FAILED,
                status_reason=reason,
                end_time=sa.func.clock_timestamp(),
            )
        )
        idle = list((await connection.execute(left.returning(actions.c.target))).scalars())
    if idle and status != ActionStatus.SUCCEEDED:
        await release_nodes(connection, idle, reason)


_BUSY = (NodeStatus.INIT, *CHANGING, NodeStatus.OPERATING)


async def release_nodes(connection: AsyncConnection, node_ids: Sequence[str], reason: str) -> None:
    """Release nodes that an action has stopped working on: those that were never made are in error."""
    await connection.execute(
        nodes.update()
        .where(state.among(nodes.c.id, node_ids), nodes.c.status.in_(_BUSY))
        .values(
            status=sa.case((nodes.c.physical_id.is_(None), NodeStatus.ERROR), else_=NodeStatus.WARNING),
            status_reason=reason,
        )
    )


async def clear_away(work: Work) -> None:
    """Delete what this attempt made for nodes that are gone or going: it was overtaken while the cloud was working.
    What was made for a node that stays is deleted with that node.
    """
    batch = work.in_hand
    if batch is None:
        return
    async with work.engine.database.begin() as connection:
        found = await state.nodes_by_id(connection, [node.id for node in batch.nodes])
    stay = {node.id for node in found.values() if node.status != NodeStatus.DELETING}
    orphans = [node for node in batch.nodes if node.id not in stay]
    if orphans:
        await batch.profile.delete(batch.cloud, orphans)


def hook_events(work: Work, plan: ActionPlan) -> list[Event]:
    """For each node that waits, what its owner needs to know to complete its deletion."""
    if plan.program.hooks is None:
        return []
    asked = plan.program.hooks.to_json()
    return [
        work.node_event(
            step,
            "waiting",
            "Waiting for the completion of its life cycle.",
            Severity.INFO,
            **hooks.message(step),
            hooks=asked,
        )
        for step in plan.steps
        if step.waiting
    ]
