"""What an action does to its nodes: in parts, each part in batches, and each batch written down as soon as it is done.

Every step may be done twice: an engine that dies between doing and writing leaves the step to be done again, and the
profile finds what was made by the node's id.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clouds.base import Cloud, CloudError
from roost.clusters import events, state
from roost.clusters.actions import hooks
from roost.clusters.actions.work import (
    CANCELLED,
    FAILED,
    SUCCEEDED,
    ActionPlan,
    NodeStep,
    Work,
    read_steps,
)
from roost.clusters.policies.base import NodeView
from roost.clusters.profiles.base import RECREATE, NodeOutcome, Profile
from roost.clusters.states import ActionName
from roost.store.database import now
from roost.store.tables.clusters import actions, nodes, unfinished

logger = logging.getLogger(__name__)

_PATIENCE = (0.5, 1.0, 2.0)
"""Seconds before a cloud that did not answer is asked again."""
_PER_NODE = ("index", "placement", "replaced_by")
_MOST_EVENTS = 20


@dataclass(frozen=True, slots=True)
class NodeBatch:
    """Nodes to which the same is done."""

    work: Work
    cloud: Cloud
    profile: Profile
    profiles: Mapping[str, Profile]
    nodes: list[NodeView]
    steps: Mapping[str, NodeStep]
    inputs: Mapping[str, Any]


@dataclass(slots=True)
class Result:
    """What became of one node, as its row is to say it."""

    node_id: str
    ok: bool
    reason: str
    columns: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    gone: bool = False


# Doing


async def carry_out(work: Work) -> bool:
    """Do the steps that are left, part by part; False if the action has to wait before it goes on."""
    if work.steps is None:
        async with work.engine.database.begin() as connection:
            work.steps = await read_steps(connection, work) if work.on_cluster else _own_step(work)
    while work.steps:
        part = work.steps[0].part
        if await _must_wait(work, part):
            return False
        await _do(work, [step for step in work.steps if step.part == part])
        work.steps = [step for step in work.steps if step.part != part]
    return True


def _own_step(work: Work) -> list[NodeStep]:
    assert work.plan is not None
    if work.plan.get("done"):
        return []
    return [NodeStep(work.id, work.action, work.target, 0, work.plan.get("inputs") or {}, bool(work.plan.get("hooks")))]


async def _must_wait(work: Work, part: int) -> bool:
    """Whether it is too early for this part: a hook, a grace period, or the pause between two parts."""
    assert work.plan is not None
    plan = work.plan
    pause, last = float(plan.get("pause") or 0), plan.get("last_part")
    rests = pause and last is not None and last != part and plan.get("paused_for") != part
    if not rests and plan.get("not_before") is None:
        return False
    async with work.engine.database.begin() as connection:
        moment = await now(connection)
    if rests:
        plan |= {"paused_for": part, "not_before": (moment + timedelta(seconds=pause)).isoformat()}
    until = datetime.fromisoformat(plan["not_before"])
    if until <= moment:
        return False
    waits_for_hooks = any(step.waiting for step in work.steps or ())
    if plan.get("hooks") and not waits_for_hooks:
        return False
    async with work.write() as connection:
        work.check_signal()
        await connection.execute(
            actions.update()
            .where(actions.c.id == work.id)
            .values(
                status="WAITING" if work.on_cluster or not waits_for_hooks else "WAITING_LIFECYCLE_COMPLETION",
                status_reason="Waiting for depended actions." if waits_for_hooks else "Waiting for its time.",
                wake_at=until,
                owner=None,
                plan=plan,
            )
        )
    return True


async def _do(work: Work, steps: Sequence[NodeStep]) -> None:
    async with work.engine.database.begin() as connection:
        found = await state.nodes_by_id(connection, [step.node_id for step in steps])
        new = {str(step.inputs["new_profile_id"]) for step in steps if step.inputs.get("new_profile_id")}
        rows = await state.profile_rows(connection, [*{node.profile_id for node in found.values()}, *new])
        owner = await _owner(connection, work)
    profiles = {key: work.engine.plugins.restore_profile(row._asdict()) for key, row in rows.items()}
    cloud = work.cloud_of(*owner)
    vanished = [step for step in steps if step.node_id not in found]
    if vanished:
        leaving = (ActionName.NODE_DELETE, ActionName.NODE_LEAVE)
        gone = [Result(step.node_id, step.action in leaving, "The node is gone.", gone=True) for step in vanished]
        await _write(work, {step.node_id: step for step in vanished}, gone)
    left = await _keep_unreplaced(work, [step for step in steps if step.node_id in found])
    for batch in _batches(work, cloud, profiles, left, found):
        work.check_signal()
        results = await _patiently(batch)
        await _write(work, batch.steps, results)


async def _keep_unreplaced(work: Work, steps: Sequence[NodeStep]) -> list[NodeStep]:
    """The steps without those of nodes that were to go once another had taken their place, and none has."""
    successors = {step.node_id: str(step.inputs["replaced_by"]) for step in steps if step.inputs.get("replaced_by")}
    if not successors:
        return list(steps)
    async with work.engine.database.begin() as connection:
        found = await state.nodes_by_id(connection, list(successors.values()))
    ready = {node.id for node in found.values() if node.status == "ACTIVE"}
    stay = {step.node_id: step for step in steps if successors.get(step.node_id, "") not in {*ready, ""}}
    if stay:
        reason = "It stays, since the node that was to take its place could not be made."
        await _write(work, stay, [Result(node_id, False, reason) for node_id in stay])
    return [step for step in steps if step.node_id not in stay]


async def _owner(connection: AsyncConnection, work: Work) -> tuple[str, str]:
    """The project and user in whose name the cloud is asked: those of the cluster, else of the node."""
    cluster = await state.cluster_row(connection, work.cluster_id) if work.cluster_id else None
    if cluster is not None:
        return cluster.project_id, cluster.user_id
    query = sa.select(nodes.c.project_id, nodes.c.user_id).where(nodes.c.id == work.target)
    node = (await connection.execute(query)).one_or_none()
    return (node.project_id, node.user_id) if node is not None else (work.owner.project_id, work.owner.user_id)


def _batches(
    work: Work,
    cloud: Cloud,
    profiles: Mapping[str, Profile],
    steps: Sequence[NodeStep],
    found: Mapping[str, NodeView],
) -> Iterator[NodeBatch]:
    def alike(step: NodeStep) -> str:
        inputs = {key: value for key, value in step.inputs.items() if key not in _PER_NODE}
        return json.dumps([step.action, found[step.node_id].profile_id, inputs], sort_keys=True)

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


async def _patiently(batch: NodeBatch) -> list[Result]:
    """Do it; a cloud that does not answer is asked again a few times before its nodes are given up."""
    action = next(iter(batch.steps.values())).action
    batch.work.in_hand = batch if action in (ActionName.NODE_CREATE, ActionName.NODE_RECOVER) else None
    for pause in (*_PATIENCE, None):
        try:
            results = await DOING[action](batch)
        except CloudError as error:
            if pause is None:
                return [_failed(node, f"The cloud does not answer: {error}") for node in batch.nodes]
            await asyncio.sleep(pause)
        else:
            return results
    raise AssertionError("unreachable")


def _failed(node: NodeView, reason: str) -> Result:
    return Result(node.id, False, reason, {"status": "ERROR", "status_reason": reason})


def _results(outcomes: Sequence[NodeOutcome], done: str, **columns: Any) -> list[Result]:
    return [_result(outcome, done, columns) for outcome in outcomes]


def _result(outcome: NodeOutcome, done: str, columns: Mapping[str, Any]) -> Result:
    if outcome.ok:
        own = {"status": "ACTIVE", "status_reason": done, "physical_id": outcome.physical_id, **columns}
    else:
        own = {"status": "ERROR", "status_reason": outcome.reason}
        if outcome.physical_id:
            own["physical_id"] = outcome.physical_id
    return Result(outcome.node_id, outcome.ok, done if outcome.ok else outcome.reason, own, dict(outcome.data))


async def _create(batch: NodeBatch) -> list[Result]:
    outcomes = await batch.profile.create(batch.cloud, batch.nodes, batch.work.cluster_id)
    return _results(outcomes, "Creation succeeded", created=True)


async def _delete(batch: NodeBatch) -> list[Result]:
    outcomes = await batch.profile.delete(batch.cloud, batch.nodes, force=bool(batch.inputs.get("force")))
    return [
        Result(outcome.node_id, True, "Deletion succeeded", gone=True) if outcome.ok else _result(outcome, "", {})
        for outcome in outcomes
    ]


async def _check(batch: NodeBatch) -> list[Result]:
    outcomes = await batch.profile.check(batch.cloud, batch.nodes)
    return [
        # That a node is not well is what a check is to find out: the check itself succeeded.
        Result(outcome.node_id, True, "", _result(outcome, "Check: Node is ACTIVE.", {}).columns, dict(outcome.data))
        for outcome in outcomes
    ]


async def _recover(batch: NodeBatch) -> list[Result]:
    well: list[Result] = []
    broken = batch.nodes
    if batch.inputs.get("check"):
        checked = await batch.profile.check(batch.cloud, batch.nodes)
        fine = {outcome.node_id for outcome in checked if outcome.ok}
        well = _results([outcome for outcome in checked if outcome.ok], "Recover: Node is ACTIVE before recover.")
        broken = [node for node in batch.nodes if node.id not in fine]
    operation = str(batch.inputs.get("operation") or RECREATE).upper()
    # A server that is only rebooted or rebuilt stays where it is, whatever place the policies had for a new one.
    places = {node.id: batch.steps[node.id].inputs.get("placement") for node in broken if operation == RECREATE}
    placed = [_placed(node, places.get(node.id)) for node in broken]
    params = batch.inputs.get("operation_params") or {}
    outcomes = await batch.profile.recover(batch.cloud, placed, operation, params, batch.work.cluster_id)
    results = _results(outcomes, "Recovery succeeded", tainted=False)
    for result in results:
        if result.ok and (place := places.get(result.node_id)):
            result.data = {"placement": place, **result.data}
    return well + results


def _placed(node: NodeView, place: Mapping[str, Any] | None) -> NodeView:
    return node._replace(data={**node.data, "placement": place}) if place else node


async def _update(batch: NodeBatch) -> list[Result]:
    columns = {
        key: batch.inputs[key] for key in ("name", "role", "metadata", "tainted") if batch.inputs.get(key) is not None
    }
    new = batch.inputs.get("new_profile_id")
    if new is None:
        return [
            Result(
                node.id, True, "Update succeeded", {"status": "ACTIVE", "status_reason": "Update succeeded", **columns}
            )
            for node in batch.nodes
        ]
    outcomes = await batch.profile.update(batch.cloud, batch.nodes, batch.profiles[new])
    return _results(outcomes, "Update succeeded", profile_id=new, **columns)


async def _operate(batch: NodeBatch) -> list[Result]:
    operation, params = str(batch.inputs["operation"]), batch.inputs.get("params") or {}
    outcomes = await batch.profile.operate(batch.cloud, batch.nodes, operation, params)
    results = _results(outcomes, f"Operation '{operation}' succeeded")
    if batch.inputs.get("best_effort"):
        for result in results:
            result.ok = True
    return results


async def _join(batch: NodeBatch) -> list[Result]:
    cluster_id = str(batch.inputs["cluster_id"])
    indexed = [node._replace(index=batch.steps[node.id].inputs["index"]) for node in batch.nodes]
    outcomes = await batch.profile.join(batch.cloud, indexed, cluster_id)
    results = _results(outcomes, "Join succeeded", cluster_id=cluster_id)
    for result in results:
        if result.ok:
            result.columns["index"] = batch.steps[result.node_id].inputs["index"]
    return results


async def _leave(batch: NodeBatch) -> list[Result]:
    outcomes = await batch.profile.leave(batch.cloud, batch.nodes)
    return _results(outcomes, "Leave succeeded", cluster_id=None, index=-1)


DOING: Mapping[str, Callable[[NodeBatch], Awaitable[list[Result]]]] = {
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


async def _write(work: Work, steps: Mapping[str, NodeStep], results: Sequence[Result]) -> None:
    """What became of a batch, in three statements however large it is."""
    async with work.write() as connection:
        gone = [result.node_id for result in results if result.gone]
        if gone:
            await connection.execute(nodes.delete().where(nodes.c.id == sa.any_(sa.bindparam("ids", gone))))
        rows = [_node_row(result) for result in results if not result.gone]
        if rows:
            await connection.execute(_UPDATE_NODES, {"rows": rows})
        if work.on_cluster:
            ended = [
                {
                    "id": steps[result.node_id].id,
                    "status": SUCCEEDED if result.ok else FAILED,
                    "reason": result.reason,
                }
                for result in results
            ]
            await connection.execute(_END_STEPS, {"rows": ended})
        else:
            _note_own(work, results[0])
        work.outputs["nodes_done"] = work.outputs.get("nodes_done", 0) + len(results)
        assert work.plan is not None
        work.plan["last_part"] = next(iter(steps.values())).part
        await connection.execute(
            actions.update().where(actions.c.id == work.id).values(outputs=work.outputs, plan=work.plan)
        )


def _note_own(work: Work, result: Result) -> None:
    assert work.plan is not None
    work.plan |= {"done": True, "failure": None if result.ok else result.reason}


def _node_row(result: Result) -> dict[str, Any]:
    columns = result.columns
    return {
        "id": result.node_id,
        "data": {key: value for key, value in result.data.items() if value is not None},
        "drop": [key for key, value in result.data.items() if value is None],
        "moves": "cluster_id" in columns,
        **columns,
    }


_UPDATE_NODES = sa.text(
    """
    UPDATE nodes SET
        status = coalesce(given.status, nodes.status),
        status_reason = coalesce(given.status_reason, nodes.status_reason),
        physical_id = coalesce(given.physical_id, nodes.physical_id),
        data = (nodes.data || given.data) - ARRAY(SELECT jsonb_array_elements_text(given.drop)),
        created_at = CASE WHEN given.created THEN now() ELSE nodes.created_at END,
        cluster_id = CASE WHEN given.moves THEN given.cluster_id ELSE nodes.cluster_id END,
        index = coalesce(given.index, nodes.index),
        profile_id = coalesce(given.profile_id, nodes.profile_id),
        name = coalesce(given.name, nodes.name),
        role = coalesce(given.role, nodes.role),
        metadata = coalesce(given.metadata, nodes.metadata),
        tainted = coalesce(given.tainted, nodes.tainted),
        updated_at = now()
    FROM jsonb_to_recordset(:rows) AS given(
        id text, status text, status_reason text, physical_id text, data jsonb, drop jsonb, created boolean,
        moves boolean, cluster_id text, index integer, profile_id text, name text, role text, metadata jsonb,
        tainted boolean
    )
    WHERE nodes.id = given.id
    """
).bindparams(sa.bindparam("rows", type_=JSONB))

_END_STEPS = sa.text(
    """
    UPDATE actions SET status = given.status, status_reason = given.reason, end_time = clock_timestamp(),
        updated_at = now()
    FROM jsonb_to_recordset(:rows) AS given(id text, status text, reason text)
    WHERE actions.id = given.id
    """
).bindparams(sa.bindparam("rows", type_=JSONB))


# Afterwards


@dataclass(frozen=True, slots=True)
class Report:
    """What became of every step."""

    rows: Sequence[Any]
    own_failure: tuple[str, str] | None = None
    """Of an action on a node, which is its own only step: the node, and why it failed."""

    @property
    def failures(self) -> list[tuple[str, str]]:
        """The nodes with which it failed, and why."""
        if self.own_failure is not None:
            return [self.own_failure]
        return [(row.name or row.target, row.status_reason) for row in self._failed]

    @property
    def unmade(self) -> list[str]:
        """The nodes that could not be made."""
        return [row.target for row in self._failed if row.action == ActionName.NODE_CREATE]

    @property
    def _failed(self) -> list[Any]:
        return [row for row in self.rows if row.status == FAILED]

    def outputs(self) -> dict[str, Any]:
        """Which nodes came, which went, and with which it failed."""
        told: dict[str, Any] = {}
        for key, kinds in _COMINGS_AND_GOINGS.items():
            listed = [row.target for row in self.rows if row.action in kinds and row.status == SUCCEEDED]
            if listed:
                told[key] = listed
        failed = {row.target: row.status_reason for row in self._failed}
        return {**told, "nodes_failed": failed} if failed else told

    def events(self, work: Work) -> list[dict[str, Any]]:
        """One event for each node with which it failed, up to a number that somebody would still read."""
        return [
            {
                **work.event("error", row.status_reason, events.ERROR),
                "oid": row.target,
                "oname": row.name or row.target[:8],
                "otype": "NODE",
                "action": row.action,
            }
            for row in self._failed[:_MOST_EVENTS]
        ]


_COMINGS_AND_GOINGS = {
    "nodes_added": (ActionName.NODE_CREATE, ActionName.NODE_JOIN),
    "nodes_removed": (ActionName.NODE_DELETE, ActionName.NODE_LEAVE),
}


async def report(connection: AsyncConnection, work: Work) -> Report:
    """Read what became of every step."""
    if not work.on_cluster:
        reason = (work.plan or {}).get("failure")
        return Report((), (work.target, reason) if reason is not None else None)
    query = (
        sa.select(actions.c.target, actions.c.action, actions.c.status, actions.c.status_reason, nodes.c.name)
        .outerjoin(nodes, nodes.c.id == actions.c.target)
        .where(actions.c.parent_id == work.id)
        .order_by(actions.c.sequence)
    )
    return Report((await connection.execute(query)).all())


async def forget_unmade(work: Work, doomed: Sequence[str]) -> None:
    """Forget new nodes that could not be made, and whatever the cloud may have left of them."""
    async with work.engine.database.begin() as connection:
        found = await state.nodes_by_id(connection, doomed)
        rows = await state.profile_rows(connection, [node.profile_id for node in found.values()])
        owner = await _owner(connection, work)
    cloud = work.cloud_of(*owner)
    gone: list[str] = []
    for key, row in rows.items():
        profile = work.engine.plugins.restore_profile(row._asdict())
        some = [node for node in found.values() if node.profile_id == key]
        try:
            outcomes = await profile.delete(cloud, some)
        except CloudError as error:
            logger.warning("what failed could not be cleared away", extra={"error": str(error)})
            continue
        gone += [outcome.node_id for outcome in outcomes if outcome.ok]
    async with work.write() as connection:
        await connection.execute(nodes.delete().where(nodes.c.id == sa.any_(sa.bindparam("ids", gone))))


async def close(connection: AsyncConnection, work: Work, status: str, reason: str) -> None:
    """End the steps that were not done, and say of their nodes that nobody is at work on them."""
    left = (
        sa.update(actions)
        .where(actions.c.parent_id == work.id, unfinished)
        .values(
            status=CANCELLED if status == CANCELLED else FAILED,
            status_reason=reason,
            end_time=sa.func.clock_timestamp(),
        )
        .returning(actions.c.target)
    )
    idle = list((await connection.execute(left)).scalars()) if work.on_cluster else []
    if not work.on_cluster and status != SUCCEEDED and not (work.plan or {}).get("done"):
        idle = [work.target]
    if idle:
        await release_nodes(connection, idle, reason)


async def release_nodes(connection: AsyncConnection, node_ids: Sequence[str], reason: str) -> None:
    """Nodes that were being worked on, and are no longer: those that never came to be are in error."""
    busy = nodes.c.status.in_(("INIT", "CREATING", "DELETING", "UPDATING", "RECOVERING", "OPERATING"))
    await connection.execute(
        nodes.update()
        .where(nodes.c.id == sa.any_(sa.bindparam("ids", list(node_ids))), busy)
        .values(
            status=sa.case((nodes.c.physical_id.is_(None), "ERROR"), else_="WARNING"),
            status_reason=reason,
        )
    )


async def clear_away(work: Work) -> None:
    """Unmake what this attempt made for nodes that are no more: it was overtaken while the cloud was at it."""
    batch = work.in_hand
    if batch is None:
        return
    async with work.engine.database.begin() as connection:
        found = await state.nodes_by_id(connection, [node.id for node in batch.nodes])
    orphans = [node for node in batch.nodes if node.id not in found]
    if orphans:
        await batch.profile.delete(batch.cloud, orphans)


def hook_events(work: Work, plan: ActionPlan) -> list[dict[str, Any]]:
    """For each node that waits, what its owner needs to know to let it go."""
    return [
        {
            **work.event("waiting", "Waiting for the completion of its life cycle."),
            "oid": step.node_id,
            "oname": step.node_id[:8],
            "otype": "NODE",
            "action": step.action,
            "meta_data": {
                **hooks.message(step),
                "hooks": plan.more["hooks"],
            },
        }
        for step in plan.steps
        if step.waiting
    ]
