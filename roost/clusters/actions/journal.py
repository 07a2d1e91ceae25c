"""What engines read and write about actions: for many actions at once, in a few statements for all of them.

Clusters are always locked before actions, and actions before nodes, each in the order of their ids, so that two
transactions never wait for each other.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from roost.clusters import bindings, events, sizes, state
from roost.clusters.actions import context, steps
from roost.clusters.actions.context import PlanningContext
from roost.clusters.actions.program import ActionPlan, Outputs
from roost.clusters.actions.requests import DERIVED
from roost.clusters.actions.steps import BatchDone, Report
from roost.clusters.actions.work import Superseded, Work
from roost.clusters.bindings import Consultation
from roost.clusters.policies.base import NodeView
from roost.clusters.states import ActionName, ActionStatus, ClusterStatus, NodeStatus, Signal
from roost.store import bulk
from roost.store.database import Database, now
from roost.store.grouping import Grouped
from roost.store.tables.clusters import actions, clusters, nodes, unfinished


@dataclass(frozen=True, slots=True)
class Planned:
    """An action that has decided what to do."""

    work: Work
    plan: ActionPlan
    context: PlanningContext


@dataclass(frozen=True, slots=True)
class Ending:
    """How an action ended."""

    status: ActionStatus
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """An action that has come to its end."""

    work: Work
    ending: Ending
    consulted: Consultation | None = None
    gone: bool = False
    """Whether the cluster goes too."""
    skipped: tuple[events.Event, ...] = ()
    """What could not be undone before the cluster went."""


class _OfWork(Protocol):
    @property
    def work(self) -> Work: ...


Entry = TypeVar("Entry", bound=_OfWork)
Asked = TypeVar("Asked")
Found = TypeVar("Found")
_Row = dict[str, Any]


class Journal:
    """The reads and writes of one engine, grouped."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.context: Grouped[Work, PlanningContext] = Grouped(self._read(context.read))
        self.nodes: Grouped[Sequence[str], dict[str, NodeView]] = Grouped(self._read(_read_nodes))
        self.report: Grouped[Work, Report] = Grouped(self._read(steps.read_reports))
        self.plan: Grouped[Planned, None] = Grouped(self._write(_write_plans))
        self.done: Grouped[BatchDone, None] = Grouped(self._write(_write_batches))
        self.end: Grouped[Ended, None] = Grouped(self._write(_write_ends))

    def _read(
        self, read: Callable[[AsyncConnection, Sequence[Asked]], Awaitable[Sequence[Found]]]
    ) -> Callable[[Sequence[Asked]], Awaitable[Sequence[Found]]]:
        async def answer(asked: Sequence[Asked]) -> Sequence[Found]:
            async with self._database.begin() as connection:
                return await read(connection, asked)

        return answer

    def _write(
        self, write: Callable[[AsyncConnection, Sequence[Entry]], Awaitable[None]]
    ) -> Callable[[Sequence[Entry]], Awaitable[Sequence[Exception | None]]]:
        """Write those entries whose attempt is still the current one; the others are `Superseded`."""

        async def answer(entries: Sequence[Entry]) -> Sequence[Exception | None]:
            async with self._database.begin() as connection:
                current = await _lock(connection, [entry.work for entry in entries])
                await write(connection, [entry for entry in entries if entry.work.id in current])
            return [None if entry.work.id in current else Superseded() for entry in entries]

        return answer


async def _read_nodes(connection: AsyncConnection, asked: Sequence[Sequence[str]]) -> list[dict[str, NodeView]]:
    found = await state.nodes_by_id(connection, {node_id for ids in asked for node_id in ids})
    return [{node_id: found[node_id] for node_id in ids if node_id in found} for ids in asked]


async def _lock(connection: AsyncConnection, works: Sequence[Work]) -> set[str]:
    """Lock the clusters and the actions; the ids of the actions of which this is still the current attempt."""
    ids = {work.cluster_id for work in works if work.cluster_id}
    if ids:
        query = sa.select(clusters.c.id).where(state.among(clusters.c.id, ids))
        await connection.execute(query.order_by(clusters.c.id).with_for_update())
    query = (
        sa.select(actions.c.id, actions.c.attempt, actions.c.control)
        .where(state.among(actions.c.id, [work.id for work in works]), unfinished)
        .order_by(actions.c.id)
        .with_for_update()
    )
    rows = {row.id: row for row in await connection.execute(query)}
    current = [work for work in works if work.id in rows and rows[work.id].attempt == work.attempt]
    for work in current:
        work.signal = Signal(rows[work.id].control) if rows[work.id].control else None
    return {work.id for work in current}


# Plans

_SET_PLANS = bulk.update(actions, actions.c.plan, actions.c.data, actions.c.outputs)
_SET_NODE_STATUS = bulk.update(nodes, nodes.c.status)
_INSERT_NODES = bulk.insert(
    nodes,
    *(nodes.c[name] for name in ("id", "name", "profile_id", "cluster_id", "index", "data", "status", "status_reason")),
    *(nodes.c[name] for name in ("user_id", "project_id", "domain_id")),
)
_given_steps = bulk.given(
    *(actions.c[name] for name in ("id", "name", "action", "target", "part", "inputs", "status", "cluster_id")),
    *(actions.c[name] for name in ("parent_id", "cause", "timeout", "user_id", "project_id", "domain_id")),
)
_INSERT_STEPS = actions.insert().from_select(
    [*(column.name for column in _given_steps.c), "start_time"], sa.select(_given_steps, sa.func.now())
)
_given_changes = bulk.given(
    *(clusters.c[name] for name in ("id", "name", "metadata", "config", "timeout", "next_index")),
    *(clusters.c[name] for name in ("profile_id", "min_size", "max_size", "desired_capacity")),
    *(clusters.c[name] for name in ("status", "status_reason")),
)
_CHANGE_CLUSTERS = (
    clusters.update()
    .where(clusters.c.id == _given_changes.c.id)
    .values(
        {
            column.name: sa.func.coalesce(column, clusters.c[column.name])
            for column in _given_changes.c
            if column.name != "id"
        }
    )
)
_BUSY_NODES = {
    ActionName.NODE_DELETE: NodeStatus.DELETING,
    ActionName.NODE_UPDATE: NodeStatus.UPDATING,
    ActionName.NODE_RECOVER: NodeStatus.RECOVERING,
    ActionName.NODE_OPERATION: NodeStatus.OPERATING,
}


async def _write_plans(connection: AsyncConnection, entries: Sequence[Planned]) -> None:
    """Write down what actions have decided, before they do it."""
    if not entries:
        return
    moment = await now(connection) if any(entry.plan.wait > 0 for entry in entries) else None
    for entry in entries:
        work, plan = entry.work, entry.plan
        program = replace(plan.program, total=len(plan.steps))
        if moment is not None and plan.wait > 0:
            program = replace(program, not_before=moment + timedelta(seconds=plan.wait))
        work.program, work.steps = program, plan.steps
        work.outputs = Outputs(nodes_done=0, nodes_total=len(plan.steps))
    await connection.execute(_SET_PLANS, {"rows": [_plan_row(entry.work) for entry in entries]})
    await _execute(connection, _INSERT_NODES, [row for entry in entries for row in _new_nodes(entry)])
    await _execute(connection, _INSERT_STEPS, [row for entry in entries for row in _new_steps(entry)])
    busy: list[_Row] = [
        {"id": step.node_id, "status": _BUSY_NODES[step.action]}
        for entry in entries
        for step in entry.plan.steps
        if step.action in _BUSY_NODES
    ]
    await _execute(connection, _SET_NODE_STATUS, sorted(busy, key=lambda row: row["id"]))
    await _execute(connection, _CHANGE_CLUSTERS, [row for entry in entries if (row := _cluster_row(entry))])
    await events.record(connection, [event for entry in entries for event in steps.hook_events(entry.work, entry.plan)])


async def _execute(connection: AsyncConnection, statement: sa.Executable, rows: Sequence[_Row]) -> None:
    if rows:
        await connection.execute(statement, {"rows": rows})


def _plan_row(work: Work) -> _Row:
    return {"id": work.id, "plan": work.planned.to_json(), "data": work.data, "outputs": work.outputs.to_json()}


def _new_nodes(entry: Planned) -> list[_Row]:
    if not entry.plan.new_nodes:
        return []
    cluster = entry.context.cluster
    owner = {"user_id": cluster.user_id, "project_id": cluster.project_id, "domain_id": cluster.domain_id}
    return [
        {
            "id": node.id,
            "name": node.name,
            "profile_id": node.profile_id,
            "cluster_id": cluster.id,
            "index": node.index,
            "data": node.data,
            "status": node.status,
            "status_reason": "Creation in progress",
            **owner,
        }
        for node in entry.plan.new_nodes
    ]


def _new_steps(entry: Planned) -> list[_Row]:
    work = entry.work
    if not work.action.on_cluster:
        return []
    owner = work.owner
    shared = {
        "cluster_id": work.cluster_id,
        "parent_id": work.id,
        "cause": DERIVED,
        "timeout": work.timeout,
        "user_id": owner.user_id,
        "project_id": owner.project_id,
        "domain_id": owner.domain_id,
    }
    return [
        {
            "id": step.id,
            "name": f"{step.action.lower()}_{step.node_id[:8]}",
            "action": step.action,
            "target": step.node_id,
            "part": step.part,
            "inputs": step.inputs.to_json(),
            "status": ActionStatus.WAITING_LIFECYCLE_COMPLETION if step.waiting else ActionStatus.READY,
            **shared,
        }
        for step in entry.plan.steps
    ]


def _cluster_row(entry: Planned) -> _Row | None:
    columns: _Row = dict(entry.plan.at_once.to_json())
    if entry.plan.busy is not None:
        columns |= {"status": entry.plan.busy, "status_reason": f"{entry.work.label} is at work."}
    return {"id": entry.work.cluster_id, **columns} if columns and entry.work.cluster_id else None


# Batches

_given_nodes = bulk.given(
    *(nodes.c[name] for name in ("id", "status", "status_reason", "physical_id", "data", "cluster_id", "index")),
    *(nodes.c[name] for name in ("profile_id", "name", "role", "metadata", "tainted")),
    drop=JSONB,
    created=sa.Boolean,
    moves=sa.Boolean,
)
_PLAIN = ("status", "status_reason", "physical_id", "index", "profile_id", "name", "role", "metadata", "tainted")
_UPDATE_NODES = (
    nodes.update()
    .where(nodes.c.id == _given_nodes.c.id)
    .values(
        **{name: sa.func.coalesce(_given_nodes.c[name], nodes.c[name]) for name in _PLAIN},
        data=sa.literal_column(
            "(nodes.data || given.data) - ARRAY(SELECT jsonb_array_elements_text(given.drop))", JSONB
        ),
        created_at=sa.case((_given_nodes.c.created, sa.func.now()), else_=nodes.c.created_at),
        cluster_id=sa.case((_given_nodes.c.moves, _given_nodes.c.cluster_id), else_=nodes.c.cluster_id),
        updated_at=sa.func.now(),
    )
)
_END_STEPS = bulk.update(actions, actions.c.status, actions.c.status_reason).values(
    end_time=sa.func.clock_timestamp(), updated_at=sa.func.now()
)
_SET_PROGRESS = bulk.update(actions, actions.c.plan, actions.c.outputs).values(updated_at=sa.func.now())
_given_moves = bulk.given(nodes.c.id, nodes.c.cluster_id)
_MOVE_WAITING = (
    actions.update()
    .where(actions.c.target == _given_moves.c.id, actions.c.parent_id.is_(None), actions.c.plan.is_(None), unfinished)
    .values(cluster_id=_given_moves.c.cluster_id, lock=sa.func.coalesce(_given_moves.c.cluster_id, _given_moves.c.id))
)
"""An action that waits for a node which joins or leaves a cluster waits for another lock from then on."""


async def _write_batches(connection: AsyncConnection, entries: Sequence[BatchDone]) -> None:
    """Write down what became of batches of nodes, and how far their actions have come."""
    if not entries:
        return
    results = sorted((result for entry in entries for result in entry.results), key=lambda result: result.node_id)
    gone = [result.node_id for result in results if result.gone]
    if gone:
        await connection.execute(nodes.delete().where(state.among(nodes.c.id, gone)))
    await _execute(connection, _UPDATE_NODES, [_node_row(result) for result in results if not result.gone])
    ended: list[_Row] = [
        {
            "id": entry.steps[result.node_id].id,
            "status": ActionStatus.SUCCEEDED if result.ok else ActionStatus.FAILED,
            "status_reason": result.reason,
        }
        for entry in entries
        if entry.work.action.on_cluster
        for result in entry.results
    ]
    await _execute(connection, _END_STEPS, ended)
    await _execute(connection, _SET_PROGRESS, [_plan_row(entry.work) for entry in entries])
    moved: list[_Row] = [
        {"id": result.node_id, "cluster_id": result.columns["cluster_id"]}
        for result in results
        if "cluster_id" in result.columns
    ]
    await _execute(connection, _MOVE_WAITING, moved)


def _node_row(result: steps.StepResult) -> _Row:
    return {
        "id": result.node_id,
        "data": {key: value for key, value in result.data.items() if value is not None},
        "drop": [key for key, value in result.data.items() if value is None],
        "created": False,
        "moves": "cluster_id" in result.columns,
        **result.columns,
    }


# Ends

_END_ACTIONS = bulk.update(
    actions, actions.c.status, actions.c.status_reason, actions.c.data, actions.c.outputs
).values(
    end_time=sa.func.clock_timestamp(), owner=sa.null(), control=sa.null(), wake_at=sa.null(), updated_at=sa.func.now()
)
_SETTLE_CLUSTERS = _CHANGE_CLUSTERS.values(
    updated_at=sa.func.now(), created_at=sa.func.coalesce(clusters.c.created_at, sa.func.now())
)


async def _write_ends(connection: AsyncConnection, entries: Sequence[Ended]) -> None:
    """End actions: their status, that of their clusters, and their events become visible together."""
    if not entries:
        return
    for entry in entries:
        work = entry.work
        if entry.consulted is not None and work.cluster_id:
            await bindings.write_down(connection, work.cluster_id, entry.consulted)
        if work.report is None:
            # It ended before all was done.
            await steps.close(connection, work, entry.ending.status, entry.ending.reason)
            work.report = (await steps.read_reports(connection, [work]))[0]
        work.outputs = work.report.outputs(work.outputs)
    await _settle(connection, entries)
    await _execute(connection, _END_ACTIONS, [_end_row(entry) for entry in entries])
    await events.record(connection, [event for entry in entries for event in _end_events(entry)])


def _end_row(entry: Ended) -> _Row:
    return {
        "id": entry.work.id,
        "status": entry.ending.status,
        "status_reason": entry.ending.reason,
        "data": entry.work.data,
        "outputs": entry.work.outputs.to_json(),
    }


def _end_events(entry: Ended) -> list[events.Event]:
    well = entry.ending.status is ActionStatus.SUCCEEDED
    level = events.Severity.INFO if well else events.Severity.ERROR
    assert entry.work.report is not None
    own = entry.work.event("end" if well else "error", entry.ending.reason, level)
    return [own, *entry.work.report.events(entry.work), *entry.skipped]


async def _settle(connection: AsyncConnection, entries: Sequence[Ended]) -> None:
    """Bring the sizes and states of the clusters in line with what their nodes are now."""
    gone = [entry.work.cluster_id for entry in entries if entry.gone and entry.work.cluster_id]
    if gone:
        await connection.execute(clusters.delete().where(state.among(clusters.c.id, gone)))
    ids = {entry.work.cluster_id for entry in entries if entry.work.cluster_id and not entry.gone}
    if not ids:
        return
    found = await state.clusters_by_id(connection, ids)
    count = sa.func.count()
    query = sa.select(
        nodes.c.cluster_id,
        count.filter(nodes.c.status == NodeStatus.ACTIVE).label("active"),
        count.filter(nodes.c.physical_id.is_not(None)).label("made"),
    ).where(state.among(nodes.c.cluster_id, found))
    counts = {
        row.cluster_id: (row.active, row.made) for row in await connection.execute(query.group_by(nodes.c.cluster_id))
    }
    rows = []
    for entry in entries:
        cluster = found.get(entry.work.cluster_id or "")
        if cluster is None or entry.gone:
            continue
        if entry.work.program is None and cluster.status not in (ClusterStatus.INIT, ClusterStatus.CREATING):
            continue  # nothing was done, so the cluster is as it was
        active, made = counts.get(cluster.id, (0, 0))
        change = _change(entry, made)
        bounds = sizes.Sizes(
            *(change.get(key, getattr(cluster, key)) for key in ("min_size", "max_size", "desired_capacity"))
        )
        change["status"], change["status_reason"] = state.health_of(bounds, active, entry.work.action)
        rows.append({"id": cluster.id, **change})
    await _execute(connection, _SETTLE_CLUSTERS, rows)


def _change(entry: Ended, made: int) -> _Row:
    plan = entry.work.program
    if plan is None:
        return {}
    if entry.ending.status is ActionStatus.SUCCEEDED:
        desired = {} if plan.desired is None else {"desired_capacity": plan.desired}
        return {**plan.change.to_json(), **desired}
    # As large as it has become: nodes that could not be made are no longer wanted.
    return {"desired_capacity": made} if plan.desired is not None and not plan.keep_desired else {}
